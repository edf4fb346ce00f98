"""
Where in a step this rank is, for the hub to tell which rank hangs or lags: pulses, and no collective.

The training's thread notes times as it goes; the agent's own thread looks at it and makes the pulses.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import TYPE_CHECKING, ClassVar

from stepwarden.agent.guarded import guarded
from stepwarden.agent.hooks.collectives import Collectives
from stepwarden.agent.pulse import stack
from stepwarden.agent.pulse.beat import Beat
from stepwarden.agent.pulse.phases import Phases
from stepwarden.agent.watch import Host, Moment, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType

    from torch import Tensor, nn

    from stepwarden.agent.hooks.calls import Call
    from stepwarden.wire import Update

WRAPPED = ("module", "_orig_mod")  # as DistributedDataParallel and torch.compile name what they hold
CODES = 256  # of the training, before those of a job with ever new ones are forgotten


class Progress(Watch):
    """Follows the phases of steps, and which modules the training calls."""

    kinds: ClassVar[tuple[str, ...]] = ("RankHung", "RankStraggling")

    def __init__(self, host: Host) -> None:
        """Begin before the first step."""
        super().__init__(host)
        self.collectives = Collectives()
        self.phases = Phases(lambda: self.collectives.seconds)
        self.roots: tuple[weakref.ref[nn.Module], ...] = ()  # that were called in training mode
        self.odd: list[weakref.ref[nn.Module]] = []  # of those, called in evaluation mode in this step
        self.beat = Beat(host.environment.rank, self.phases, self.collectives, host.local)
        self.beat.evaluating = self.evaluating

    def install(self) -> Iterable[Callable[[], object]]:
        """Hear of collectives, and be asked for pulses."""
        self.host.ticks.append(guarded(self.host, self.kinds, self.tick))
        return [self.collectives.install(), self.host.ticks.clear]

    def tick(self) -> None:
        """Say the pulse that is due, if one is; none once the training's events are not heard any more."""
        if self.kinds[0] not in self.host.unknown and (pulse := self.beat.next()) is not None:
            self.host.tell(pulse)

    def forward_began(self, call: Call) -> None:
        """Note that a forward pass begins."""
        self.phases.forward(time.perf_counter())
        module = call.module
        known = next((reference for reference in self.roots if reference() is module), None)
        if known is None and module.training:
            living = [reference for reference in self.roots if reference() is not None]
            self.roots = (*living, weakref.ref(module))
        elif known is not None and not module.training:
            self.odd.append(known)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Note that a backward pass begins."""
        del tensors
        self.phases.backward(time.perf_counter())

    def backward_ended(self) -> None:
        """Note that it is done."""
        self.phases.behind(time.perf_counter(), self.host.local.last)

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Note that a step is whole, but for its update."""
        now = time.perf_counter()
        self.phases.boundary(now, moment.step, moment.reading.seconds)
        if (pulse := self.beat.stepped(now)) is not None:
            self.host.tell(pulse)
        if self.odd:  # they are trained in evaluation mode: that says nothing
            self.roots = tuple(reference for reference in self.roots if reference not in self.odd)
            self.odd.clear()
        if moment.due:
            self.beat.training = learned(self.beat.training)
        return ()

    def released(self, update: Update) -> None:
        """Note that the update comes, or is left out."""
        self.phases.released(time.perf_counter(), skipped=update == "skip")

    def stepped(self, moment: Moment) -> Iterable[object]:
        """Note that the update is done."""
        del moment
        self.phases.stepped(time.perf_counter())
        return ()

    def evaluating(self) -> bool:
        """Whether a module that is trained is in evaluation mode now."""
        return any(
            (module := reference()) is not None and not all(one.training for one in with_inner(module))
            for reference in self.roots
        )


def with_inner(module: nn.Module) -> Iterable[nn.Module]:
    """Yield a module, and those that it is a wrapper of."""
    yield module
    for name in WRAPPED:
        if (inner := module._modules.get(name)) is not None:  # noqa: SLF001 - no exception where there is none
            yield from with_inner(inner)


def learned(known: frozenset[CodeType]) -> frozenset[CodeType]:
    """Add the codes that run now, at the boundary of a step, to those that the training runs in."""
    calls = stack.frames(sys._getframe(1))  # noqa: SLF001 - the cheap way to one's own stack
    return (known if len(known) < CODES else frozenset()) | {frame.f_code for frame in calls}
