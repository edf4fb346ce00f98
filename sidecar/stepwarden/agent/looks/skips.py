"""
The steps that a GradScaler skips, by optimizer: they have no boundary, so they are told from `update`.

Whether a step was skipped is known on the host where the scaler itself decided there; a fused optimizer
decides on its device, and its answer is looked at a step later.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from stepwarden.agent.hooks.scalers import Later
from stepwarden.agent.looks.gradients import collect, counts, norms
from stepwarden.agent.looks.parameters import Parameters
from stepwarden.agent.looks.reading import capturing
from stepwarden.probes import Observation, scaler_starved
from stepwarden.probes.scaler_starved import Skips

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from stepwarden.agent.watch import Host


@dataclass(slots=True)
class Run:
    """One optimizer's skipped steps: in a row, in all, of how many; the fields are those of `Skips`."""

    first: float
    before: float  # the scale behind the step before
    run: int = 0
    total: int = 0
    of: int = 0
    told: bool = False
    place: tuple[str, int] | None = None
    late: deque[Later] = field(default_factory=deque)

    def count(self, *, skipped: bool) -> None:
        """Count one step."""
        self.of += 1
        if not skipped:
            self.run = 0
            return
        self.run += 1
        self.total += 1


class Counting:
    """Counts, and says where a scaler starves."""

    def __init__(self, host: Host, scale: Callable[[GradScaler], float]) -> None:
        """Begin without any."""
        self.host, self.scale = host, scale
        self.runs: WeakKeyDictionary[Optimizer, Run] = WeakKeyDictionary()
        self.now: list[Optimizer] = []
        self.applied = False

    def stepping(self) -> None:
        """Stand before a scaler's step."""
        self.applied = False

    def ran(self) -> None:
        """Note that an optimizer is about to apply its gradients."""
        self.applied = True

    def stepped(self, scaler: GradScaler, optimizer: Optimizer, place: tuple[str, int] | None) -> None:
        """Stand behind a scaler's step."""
        if capturing():
            return
        scale = self.scale(scaler)
        run = self.runs.get(optimizer)
        if run is None:
            run = self.runs[optimizer] = Run(first=scale, before=scale)
        run.place = place
        state = scaler._per_optimizer_states.get(id(optimizer), {})  # noqa: SLF001 - there is no other way
        found = list(state.get("found_inf_per_device", {}).values())
        if not found:
            return
        if all(one.device.type == "cpu" for one in found):
            run.count(skipped=any(one.item() for one in found))
        elif not getattr(optimizer, "_step_supports_amp_scaling", False):
            run.count(skipped=not self.applied)
        else:
            run.late.append(Later(torch.stack([one.to(found[0].device) for one in found]).sum()))
            while run.late and (value := run.late[0].value()) is not None:
                run.late.popleft()
                run.count(skipped=value > 0)
        self.now.append(optimizer)

    def updated(self, scaler: GradScaler) -> None:
        """Stand behind a change of the scale: speak of those that skip, and once when they no longer do."""
        now, self.now = self.now, []
        settings = self.host.environment.probes.probes.get(scaler_starved.KIND)
        for optimizer in now if settings is not None else ():
            run, scale = self.runs[optimizer], self.scale(scaler)
            if run.run or run.told:
                self.judge(optimizer, run, scale, settings or {})
            run.before = scale

    def judge(self, optimizer: Optimizer, run: Run, scale: float, settings: Mapping[str, float]) -> None:
        """Hand on what is bad, and what no longer is. The gradient to blame is looked for once."""
        record = self.record(run, scale)
        bad = scaler_starved.probe(Observation(rank=0, step=0, records=(record,)), settings).status == "bad"
        if bad and not run.told:
            record = self.record(run, scale, **blamed(optimizer))
        if bad or run.told:
            self.host.aside(optimizer, (record,))
        run.told = bad

    @staticmethod
    def record(run: Run, scale: float, **more: Any) -> Skips:
        """Put it as plain numbers."""
        file, line = run.place or (None, None)
        return Skips(
            run=run.run,
            total=run.total,
            of=run.of,
            scale=scale,
            first=run.first,
            falling=scale < run.before,
            file=file,
            line=line,
            **more,
        )


@torch.no_grad()
def blamed(optimizer: Optimizer) -> dict[str, Any]:
    """Name the first gradient that is not finite, if gradients are still there. Waits for the device."""
    parameters, gradients = collect(optimizer)
    if not gradients:
        return {}
    sizes = norms(gradients).tolist()
    for parameter, gradient, size in zip(parameters, gradients, sizes, strict=True):
        if not math.isfinite(size):
            nan, inf = counts(gradient)
            name = Parameters(optimizer).names(optimizer).get(id(parameter))
            return {"parameter": name, "nan": nan, "inf": inf}
    return {}
