"""
For GradientTruncated: records a step's operators from its first forward pass up to its boundary.

That is done in the first step of each optimizer, and again when a parameter that had a gradient has
lost it, each time after a longer pause: experts come and go.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from stepwarden.agent.looks.names import unwrapped
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.replay import run, snapshot
from stepwarden.agent.replay.buffers import Buffers
from stepwarden.agent.trace import Recorder, handmade, patches, replayed, sources, standing
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import cut, gradient_truncated
from stepwarden.probes.gradient_truncated import Truncation
from stepwarden.probes.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from stepwarden.agent.hooks.calls import Call
    from stepwarden.agent.replay.snapshot import Snapshot

LIMIT = 30_000  # operators of a live recording: about a third of a second
KEPT = 8  # calls that are kept for a replay
PATIENCE = 8  # steps in which a new optimizer is waited for


@dataclass(slots=True, eq=False)
class Sight:
    """
    What was seen of an optimizer.

    `trained` are the parameters that had a gradient in its last step, `copied` the names of those that
    began as copies of others; from its step `again` on it may be recorded again.
    """

    trained: list[Tensor]
    copied: set[str] = field(default_factory=set)
    again: int = 0
    pause: int = 1


class TruncationWatch(Watch):
    """Records a step where that may tell something."""

    kinds: ClassVar[tuple[str, ...]] = (gradient_truncated.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin armed: the first step is recorded."""
        super().__init__(host)
        self.recorder: Recorder | None = None
        self.calls: list[Snapshot] = []
        self.sights: weakref.WeakKeyDictionary[Optimizer, Sight] = weakref.WeakKeyDictionary()
        self.until = PATIENCE
        self.armed = True

    def install(self) -> Iterable[Callable[[], object]]:
        """Wrap what programs keep references to."""
        return (patches.custom_functions(), self.drop)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Wait for a new optimizer's first step."""
        del optimizer
        self.armed = True
        self.until = self.host.step + PATIENCE
        self.begin()

    def begin(self) -> None:
        """Record from here; from the next forward pass on where a mode of the user's may end before."""
        if self.recorder is None:
            self.recorder = Recorder(lean=True, limit=LIMIT)
        if not standing.foreign(self.recorder):
            self.recorder.put_on()

    def forward_began(self, call: Call) -> None:
        """Record from here."""
        recorder = self.recorder
        if recorder is not None and recorder.full and not recorder.book.losses:
            recorder.take_off()  # of what came before the training
            recorder = None
        if recorder is None and self.armed:
            recorder = self.recorder = Recorder(lean=True, limit=LIMIT)
        if recorder is None or recorder.why is not None:
            return
        if len(self.calls) < KEPT:
            self.calls.append(snapshot.take(call, Buffers(), copies=False))
        if replayed.compiled(call.module):
            recorder.halt(patches.COMPILED)
        else:
            recorder.resume(call.module)

    def forward_ended(self, call: Call, output: Any) -> None:
        """Go on in the user's own code, unless a mode of the user's may end there."""
        if self.recorder is not None:
            for kept in self.calls:
                if kept.module is unwrapped(call.module) and not kept.ended:
                    kept.ended_with(output)
            self.recorder.book.modules.left(call.module)
            if standing.foreign(self.recorder):
                self.recorder.take_off()

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Note the loss."""
        if self.recorder is not None:
            self.recorder.backward_from(tensors)

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look where a step was recorded; see whether one is to be."""
        sight = self.sights.get(moment.optimizer)
        before = None if sight is None else sight.trained
        if sight is None:
            sight = self.sights[moment.optimizer] = Sight(moment.reading.parameters)
        sight.trained = moment.reading.parameters
        if self.recorder is not None:
            self.recorder.take_off()
            record = self.look(moment, self.recorder, sight)
            self.recorder.book.closed = True
            self.rest()
            return (record,)
        if without_gradient(moment.optimizer) if before is None else fewer(sight.trained, before):
            self.arm(sight, moment)
        return ()

    def stepped(self, moment: Moment) -> Iterable[object]:
        """Go on behind an update."""
        del moment
        if self.armed:
            self.begin()
            if self.recorder is not None and self.recorder.book.forward is None:
                self.recorder.book.forward = 0  # what is written from here on is no checkpoint that is loaded
        return ()

    def arm(self, sight: Sight, moment: Moment) -> None:
        """Record the next step, unless that was done a short while ago."""
        if moment.count >= sight.again:
            self.armed = True
            self.until = self.host.step + PATIENCE
            sight.again = moment.count + sight.pause
            sight.pause *= 2

    def rest(self) -> None:
        """Record no more once each optimizer has been seen, or isn't to be waited for any longer."""
        seen = all(optimizer in self.sights for optimizer in self.host.living())
        if seen or self.host.step >= self.until:
            self.armed = False
            self.drop()

    def drop(self) -> None:
        """Let go of what was recorded."""
        if self.recorder is not None:
            self.recorder.take_off()
        self.recorder = None
        self.calls.clear()

    def look(self, moment: Moment, recorder: Recorder, sight: Sight) -> Truncation:
        """Put what was recorded as plain values."""
        lost = without_gradient(moment.optimizer)
        having = [parameter for parameter in trained(moment.optimizer) if parameter.grad is not None]
        if not lost:
            return Truncation(trace=NOTHING, suspects=(), trained=len(having))
        called = moment.names()  # dear, at first
        suspects = {
            called[id(one)]: one
            for one in lost
            if id(one) in called and not handmade.rewritten(recorder, one)
        }
        trace, why = NOTHING, None
        if suspects and any(hasattr(parameter, "_sharded_size") for parameter in (*lost, *having)):
            why = "the parameters are flattened and sharded (FullyShardedDataParallel)"
        elif suspects:
            trace, why = self.recorded(recorder, moment)
        cuts = cut.find(trace, suspects)
        for one in cuts:
            if handmade.copies([suspects[name] for name in one.parameters], having):
                sight.copied.update(one.parameters)
        names = tuple(name for name in suspects if name not in sight.copied)
        places = {gradient_truncated.located(one) for one in cuts}
        optional = frozenset(
            (file, line) for file, line in places if file and line and sources.optional(file, line)
        )
        return Truncation(trace=trace, suspects=names, trained=len(having), why=why, optional=optional)

    def recorded(self, recorder: Recorder, moment: Moment) -> tuple[Trace, str | None]:
        """Return the step's trace, or that of a replay; or say why there is none."""
        try:
            if recorder.why == patches.COMPILED:
                recorder = replayed.record(self.calls)
                if recorder.why is not None:
                    return NOTHING, f"the model is compiled, and a replay didn't help: {recorder.why}"
            trace = sources.joined(recorder.trace(moment.roots()))
        except run.CannotReplay as error:
            return NOTHING, f"the model is compiled, and can't be run again: {error}"
        if recorder.failed:
            return NOTHING, f"the recording failed: {recorder.why}"
        if not trace.losses:
            return NOTHING, recorder.why or "no backward pass began at what was recorded"
        return trace, None


NOTHING = Trace()


def without_gradient(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that should have a gradient, and have none."""
    return [one for one in trained(optimizer) if one.requires_grad and one.grad is None]


def fewer(now: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """
    Whether parameters have lost their gradients, and no other ones have got theirs.

    Where others have got them the loop trains its parts in turn, as it is meant to.
    """
    return len(now) < len(before) and {id(one) for one in now} < {id(one) for one in before}
