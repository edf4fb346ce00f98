"""
Changes of an optimizer's parameters between two of its steps, and what came with them.

Kept apart by what is seen beside them: a load, an evaluation, a load of the optimizer's state. Whether
they are a fault is the probe's to say.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.probes.parameter_changed_outside_step import OCCASIONS, Outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch.optim import Optimizer

    from stepwarden.agent.looks.sampling import Sample
    from stepwarden.agent.watch import Moment

TOLERANCE = 1e-5  # of a parameter's root mean square: what is swapped in and out again is rounded
LOW_TOLERANCE = 2e-2  # the same in half precision
METHODS = {"load_state_dict": "load", "eval": "evaluation", "state_dict": "save"}
LONGEST = 50  # steps that are waited for a change to come again


class Occasions:
    """When weights were loaded or saved, and when modules went into evaluation, and by which lines."""

    def __init__(self) -> None:
        """Begin with none."""
        self.counts = dict.fromkeys(OCCASIONS, 0)
        self.places: dict[str, tuple[str, int] | None] = {}
        self.loaded: list[TensorWeakRef] = []

    def note(self, occasion: str, module: nn.Module) -> None:
        """Note one."""
        self.counts[occasion] += 1
        self.places[occasion] = caller(sys._getframe(1))  # noqa: SLF001 - the cheap way to the caller's line
        if occasion == "load":
            self.loaded = [TensorWeakRef(parameter) for parameter in module.parameters()]

    def concern(self, parameters: Iterable[Tensor]) -> bool:
        """Whether the last load was of some of these parameters."""
        ids = {id(parameter) for reference in self.loaded if (parameter := reference()) is not None}
        return any(id(parameter) in ids for parameter in parameters)

    def since(self, then: Mapping[str, int], parameters: Sequence[Tensor]) -> str:
        """Return the gravest occasion since some counts."""
        for occasion, count in self.counts.items():
            if count > then.get(occasion, 0) and (occasion != "load" or self.concern(parameters)):
                return occasion
        return ""

    def install(
        self, guard: Callable[[Callable[..., object]], Callable[..., None]]
    ) -> list[Callable[[], None]]:
        """Wrap three methods of all modules; return what undoes it."""
        return [
            wrap(method, guard(functools.partial(self.note, occasion)))
            for method, occasion in METHODS.items()
        ]


def wrap(name: str, note: Callable[[nn.Module], None]) -> Callable[[], None]:
    """Call `note` behind a method of all modules; return what undoes it."""

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            inner = bool(kwargs.get("destination") or kwargs.get("prefix"))  # state_dict calls itself
            outcome = original(module, *args, **kwargs)
            if not torch.compiler.is_compiling() and not inner:
                note(module)
            return outcome

        return watched

    return replace_attribute(nn.Module, name, noting)


class Intrusion:
    """The changes between the steps of one optimizer."""

    def __init__(self, occasions: Occasions, parameters: Sequence[Tensor]) -> None:
        """Begin before its first update."""
        self.occasions, self.parameters = occasions, parameters
        self.quiet = 0
        self.pending: Outside | None = None
        self.since = 0  # this optimizer's steps before the pending change
        self.said = False
        self.versions: list[int] = []
        self.then: dict[str, int] = {}
        self.state = 0

    def note(self, optimizer: Optimizer) -> None:
        """Note behind an update what a later change is told by."""
        self.versions = [parameter._version for parameter in self.parameters]  # noqa: SLF001 - no public name
        self.then = dict(self.occasions.counts)
        self.state = id(optimizer.state)

    def touched(self) -> list[int]:
        """Return the places of the parameters of which an in-place change was counted since."""
        versions = [parameter._version for parameter in self.parameters]  # noqa: SLF001 - as above
        if versions == self.versions:
            return []
        return [index for index, version in enumerate(versions) if version != self.versions[index]]

    def look(
        self, moment: Moment, sample: Sample, update: Callable[[], Tensor | None], after: Tensor, now: Tensor
    ) -> Outside | None:
        """Return what is to be said before an update. The last one added `update` and left `after`."""
        touched = self.touched()
        event = None
        if not torch.equal(after, now):
            event = self.event(moment, sample, update, after, now)
        elif touched and self.quiet:
            event = self.unmeasured(moment, sample, touched)
        if event is None:
            self.quiet = 0 if touched else self.quiet + 1
            return self.waiting(moment, len(sample.parameters))
        self.quiet, self.said = 0, True
        again = self.pending is not None
        self.pending, self.since = None if again or event.occasion else event, moment.count
        return event

    def waiting(self, moment: Moment, of: int) -> Outside | None:
        """Return a change that didn't come again, or once that all is quiet."""
        pending = self.pending
        if pending is not None:
            if (
                moment.count - self.since < min(pending.quiet, LONGEST) + 2
            ):  # it would come again one step earlier
                return None
            self.pending = None
            return replace(pending, waited=max(pending.quiet, 1))
        if self.said:
            self.said = False
            return Outside(of=of)
        return None

    def unmeasured(self, moment: Moment, sample: Sample, touched: Sequence[int]) -> Outside | None:
        """
        Describe an in-place change of parameters of which none is in the sample.

        None where one is: then its values are as before.
        """
        measured = set(map(id, sample.parameters))
        changed = [self.parameters[index] for index in touched]
        if any(id(parameter) in measured for parameter in changed):
            return None
        return self.described(moment, changed, len(self.parameters), float("nan"), float("inf"))

    def described(
        self, moment: Moment, changed: Sequence[Tensor], of: int, size: float, updates: float
    ) -> Outside:
        """Describe a change, and what came with it."""
        called = moment.names()
        occasion = self.occasions.since(self.then, changed)
        return Outside(
            of=of,
            step=moment.step,
            changed=len(changed),
            quiet=self.quiet,
            size=size,
            updates=updates,
            occasion=occasion,
            resumed=id(moment.optimizer.state) != self.state,
            names=tuple(name for each in changed if (name := called.get(id(each))) is not None),
            place=self.occasions.places.get(occasion),
        )

    def event(
        self, moment: Moment, sample: Sample, update: Callable[[], Tensor | None], after: Tensor, now: Tensor
    ) -> Outside | None:
        """Measure a change; None where it is only rounding."""
        delta = (now - after).double()
        changed = changes(sample, delta, after)
        if not any(changed):
            return None
        kept = torch.tensor(changed)[sample.owner]
        bad = [parameter for parameter, is_bad in zip(sample.parameters, changed, strict=True) if is_bad]
        last = update()
        updates = part(delta, last, kept) if last is not None else 0.0
        return self.described(moment, bad, len(changed), part(delta, after, kept), updates)


def changes(sample: Sample, delta: Tensor, after: Tensor) -> list[bool]:
    """Say for each parameter whether it changed by more than rounding."""
    low = [parameter.dtype in (torch.float16, torch.bfloat16) for parameter in sample.parameters]
    tolerance = torch.tensor([LOW_TOLERANCE if each else TOLERANCE for each in low], dtype=torch.float64)
    size = (sample.sums(after.double() ** 2) / sample.sums(torch.ones_like(after))).sqrt() * tolerance
    beyond = delta.abs().cpu() > size[sample.owner]
    found: list[bool] = (sample.sums(beyond) > 0).tolist()
    return found


def part(delta: Tensor, whole: Tensor, kept: Tensor) -> float:
    """Return the norm of a change over that of something else, over the elements that are kept."""
    kept = kept.to(delta.device)
    size = float(whole.double()[kept].norm())
    return float(delta[kept].norm()) / size if size else float("inf")
