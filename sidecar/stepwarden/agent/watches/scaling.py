"""
Loss scaling: that each gradient is multiplied and divided once, and clipped behind both.

Nothing is read from an accelerator in a healthy step. What is suspicious is looked at closer, once.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from torch import Tensor

from stepwarden.agent.hooks import clearing, clipping, scalers
from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.scalers import Scale, Told
from stepwarden.agent.looks.passes import Pass, Passes, leaves
from stepwarden.agent.looks.scales import mark, scaled_by
from stepwarden.agent.looks.skips import Counting
from stepwarden.agent.looks.steady import Steady
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import gradient_scale_wrong, scaler_starved
from stepwarden.probes.gradient_scale_wrong import FAULTS, Fault, Scaling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.amp import GradScaler
    from torch.optim import Optimizer

    Place = tuple[str, int]

MEANT = 1e-3  # what a limit that was multiplied by the scale on purpose is at least without it
LARGE = 1e3  # a limit that is no usual one, so that somebody multiplied it
TOLD = ("scaling", "scaled", "unscaling", "stepping", "passed", "updated", "read")
WALKS = 5  # graphs that are walked before it is known that a program is healthy


class Current:
    """The scaler that was used last in this process, for `current_scale`."""

    look: Callable[[], float | None] = staticmethod(lambda: None)


def current_scale() -> float | None:
    """
    Return this rank's loss scale, by which the step's losses are multiplied; None where there is none.

    Waits for no device: on an accelerator it is the last scale that arrived.
    """
    return Current.look()


class ScalingWatch(Watch):
    """Follows the scalers of one process. Told by wrappers, whose errors turn it off at the next boundary."""

    kinds: ClassVar[tuple[str, ...]] = (gradient_scale_wrong.KIND, scaler_starved.KIND)

    def __init__(self, host: Host) -> None:
        """Begin before the first scaler."""
        super().__init__(host)
        self.passes = Passes(host.living)
        self.scales: WeakKeyDictionary[GradScaler, Scale] = WeakKeyDictionary()
        self.counting = Counting(host, self.scale)
        self.steady: WeakKeyDictionary[Optimizer, Steady] = WeakKeyDictionary()
        self.found: list[Scaling] = []
        self.told = False  # whether the step before had a fault
        self.asked = False  # whether the program looked at a scale since the last update
        self.used = False  # whether a loss was scaled since the last update
        self.latest: GradScaler | None = None
        self.inside: list[tuple[GradScaler, Optimizer]] = []
        self.walks = 0
        self.window = 0  # the number of the last pass before the last update of a scale
        self.error: Exception | None = None

    def install(self) -> Iterable[Callable[[], object]]:
        """Wrap scalers, clipping, and what clears gradients."""
        Current.look = self.look
        return [
            scalers.install(Told(**{name: self.safely(getattr(self, name)) for name in TOLD})),
            clipping.install(lambda: self.latest is not None, self.safely(self.clipped)),
            clearing.install(lambda: self.latest is not None, self.safely(self.passes.cleared)),
            self.forget,
        ]

    def forget(self) -> None:
        """Stand behind the agent's end."""
        if Current.look == self.look:
            Current.look = staticmethod(lambda: None)
        self.latest = None

    def safely(self, act: Callable[..., object]) -> Callable[..., None]:
        """Keep an error from the program, and for the next boundary."""

        def acted(*args: Any) -> None:
            if self.error is None:
                try:
                    act(*args)
                except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                    self.error = error

        return acted

    def scale(self, scaler: GradScaler) -> float:
        """Return what is known of a scale, waiting for nothing."""
        known = self.scales.get(scaler)
        if known is None:
            known = self.scales[scaler] = Scale(scaler)
        return known.look(scaler)

    def look(self) -> float | None:
        """Return the scale of the scaler that was used last."""
        return self.scale(self.latest) if self.latest is not None else None

    def scaling(self, scaler: GradScaler, losses: Any) -> None:
        """See whether a loss was scaled before."""
        if self.latest is None or not isinstance(losses, Tensor | list | tuple):
            return
        scale = self.scale(scaler)
        for loss in (losses,) if isinstance(losses, Tensor) else losses:
            before = scaled_by(loss) if isinstance(loss, Tensor) else None
            origin = before.value if before is not None else None
            if origin is not None and scale > 1 and self.multiplied(loss, origin, scale):
                self.say("twice", scale, caller(sys._getframe()))  # noqa: SLF001 - the caller's line

    @staticmethod
    def multiplied(loss: Tensor, origin: Tensor, scale: float) -> bool:
        """Whether a scaled loss still is it: somebody may have divided it again. Waits for a device."""
        first, now = abs(origin.item()), abs(loss.detach().sum().item())
        return first > 0 and bool(now / first > scale**0.5)

    def scaled(self, scaler: GradScaler, losses: Any, outcomes: Any) -> None:
        """Mark what a scaler returned."""
        self.latest, self.used = scaler, True
        self.host.losses.scaled(losses, outcomes)
        mark(scaler, losses, outcomes)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Note a pass, and whether it begins with a scaled loss."""
        if self.latest is None:
            return
        place = caller(sys._getframe())  # noqa: SLF001 - the cheap way to the caller's line
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self.passes.began(tensor, scaled_by(tensor), place, weighted=self.host.losses.weighted)

    def unscaling(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """See whether what is divided was multiplied."""
        fresh, scale = self.passes.fresh(optimizer), self.scale(scaler)
        plain = [one for one in fresh if one.mark is None and not one.weighted]
        if plain and scale > 1 and not self.asked:
            if not self.used and len(plain) == len(fresh):
                self.say("never", scale, plain[-1].place)
            elif self.used and (fault := self.unlike(plain[-1], fresh, optimizer)) is not None:
                self.say(fault, scale, plain[-1].place)
        self.passes.done(optimizer)

    def unlike(self, plain: Pass, fresh: Sequence[Pass], optimizer: Optimizer) -> Fault | None:
        """
        Compare what an unscaled and the scaled passes gave gradients to. Dear, so seldom asked.

        A second stage, which begins with gradients of the first, is not scaled and right so: there the
        scaled passes end in no parameter of any optimizer, or in others of the same one.
        """
        self.walks += 1
        if self.walks > WALKS and self.walks % 100:
            return None
        own = self.passes.ids(optimizer) & leaves(plain)
        scaled = [one for one in self.passes.last if one.mark is not None and one.number > self.window]
        multiplied = [(one, leaves(one)) for one in scaled] if own else []
        held = frozenset[int]().union(*(found for one, found in multiplied if one in fresh))
        if own & held:
            return "mixed"
        theirs = (self.passes.ids(one) for one in self.host.living() if one is not optimizer)
        elsewhere = any(found & ids for ids in theirs for _, found in multiplied)
        return "never" if elsewhere and not held & self.passes.ids(optimizer) else None

    def clipped(self, parameters: Sequence[Tensor], limit: Any, norm: Any, place: Place | None) -> None:
        """See whether gradients were clipped while still scaled."""
        for optimizer in self.passes.owners(parameters):
            fresh = [one for one in self.passes.fresh(optimizer) if one.mark is not None]
            scaler = fresh[-1].mark.scaler() if fresh and fresh[-1].mark is not None else None
            if scaler is None or not self.passes.sure(fresh[-1], optimizer):
                continue
            most, scale = float(limit), self.scale(scaler)
            if scale <= 1 or not 0 < most < math.inf or self.meant(most, scale):
                continue
            on_host = isinstance(norm, Tensor) and norm.device.type == "cpu" and not hasattr(norm, "to_local")
            self.say("clipped", scale, place, limit=most, norm=float(norm) if on_host else None)
            return

    def meant(self, limit: float, scale: float) -> bool:
        """Whether a limit for scaled gradients was multiplied by the scale on purpose."""
        return limit / scale >= MEANT and (self.asked or limit >= LARGE)

    def say(self, fault: Fault, scale: float, place: Place | None, **more: Any) -> None:
        """Keep a fault for the next boundary."""
        file, line = place or (None, None)
        self.found.append(Scaling(fault=fault, scale=scale, file=file, line=line, **more))

    def boundary(self, moment: Moment) -> Iterable[object]:
        """See whether what is about to be applied is still scaled."""
        if self.error is not None:
            raise self.error
        if self.latest is None:
            return ()
        optimizer = moment.optimizer
        inside = [one for _, one in self.inside]
        if not inside or inside[-1] is optimizer:
            self.used_scaled(optimizer, within=bool(inside))
            self.passes.done(optimizer)
        self.counting.ran()
        found, self.found = sorted(self.found, key=lambda one: FAULTS.index(one.fault or "never")), []
        again, self.told = self.told, bool(found)
        if found:
            return [first(found)]
        return [Scaling(scale=self.look())] if again or moment.due else ()

    def used_scaled(self, optimizer: Optimizer, *, within: bool) -> None:
        """Look for passes that are in an optimizer's gradients with their scale."""
        if within and (handles_scale(optimizer) or getattr(optimizer, "grad_scale", None) is not None):
            return  # a fused optimizer divides by itself
        fresh = [one for one in self.passes.fresh(optimizer) if one.mark is not None]
        if not fresh or fresh[-1].mark is None or (scaler := fresh[-1].mark.scaler()) is None:
            return
        scale = self.scale(scaler)
        if scale > 1 and not self.asked and self.passes.sure(fresh[-1], optimizer):
            place = fresh[-1].place if within else caller(sys._getframe())  # noqa: SLF001 - the step's caller
            self.say("added" if within else "stepped", scale, place)

    def numbers(self, moment: Moment) -> Iterable[object]:
        """See whether a norm is a usual limit divided by the scale, step for step."""
        if self.latest is None or moment.values is None or moment.values.gradient_norm is None:
            return ()
        steady = self.steady.setdefault(moment.optimizer, Steady())
        limit = steady.look(moment.values.gradient_norm, self.scale(self.latest))
        if limit is not None:
            norm, scale = moment.values.gradient_norm, self.scale(self.latest)
            self.found.append(Scaling(fault="tiny", scale=scale, limit=limit, norm=norm, steps=steady.run))
        return ()

    def stepping(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """Stand before a scaler's step."""
        self.inside.append((scaler, optimizer))
        self.counting.stepping()

    def passed(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        """Stand behind it, and see whether it was skipped."""
        self.inside.clear()
        self.counting.stepped(scaler, optimizer, caller(sys._getframe()))  # noqa: SLF001 - the caller's line
        self.passes.done(optimizer)

    def updated(self, scaler: GradScaler) -> None:
        """Stand behind a scale's change."""
        self.asked = self.used = False
        self.window = self.passes.number
        self.inside.clear()
        self.scale(scaler)
        self.scales[scaler].changed(scaler)
        self.counting.updated(scaler)

    def read(self, scaler: GradScaler, scale: float) -> None:
        """Note that the program looked: it may do itself what it would leave to the scaler."""
        self.asked = True
        self.scale(scaler)
        self.scales[scaler].known = scale


def first(found: Sequence[Scaling]) -> Scaling:
    """Return the worst fault, which names the others."""
    return replace(found[0], others=tuple(str(one.fault) for one in found[1:]))


def handles_scale(optimizer: Optimizer) -> bool:
    """Whether an optimizer was given the scaler itself."""
    return getattr(optimizer, "_step_supports_amp_scaling", False) and not hasattr(optimizer, "found_inf")
