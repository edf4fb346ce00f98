"""
The replay: what each step's module calls began from is kept, and run again when the step was bad.

Kept until the next forward pass behind a boundary: references to the inputs, small copies of what changes.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from stepwarden import wire
from stepwarden.agent.hooks import labels
from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.agent.looks.reading import capturing
from stepwarden.agent.replay import snapshot
from stepwarden.agent.replay.buffers import Buffers
from stepwarden.agent.replay.explaining import Explaining
from stepwarden.agent.replay.lossside import LossSide
from stepwarden.agent.replay.shelf import Shelf
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import nonfinite_activation, nonfinite_gradient, nonfinite_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor, nn

    from stepwarden.agent.hooks.calls import Call
    from stepwarden.agent.replay.snapshot import Snapshot
    from stepwarden.wire import Finding

ANOMALY = "returned nan values in its"  # what torch raises in its anomaly mode
FREE = 60.0  # seconds of replays that a run may take in any case
SHARE = 0.05  # of its time that it may take beside: a policy that skips lets every step be a bad one
KEPT = 8  # calls of a step: micro-batches that are accumulated
EXPLAINED = frozenset({nonfinite_gradient.KIND, nonfinite_loss.KIND})


class Replaying(Watch):
    """Keeps what calls begin from, and explains bad gradients and losses by running them again."""

    kinds: ClassVar[tuple[str, ...]] = (nonfinite_activation.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin with nothing kept."""
        super().__init__(host)
        self.calls: deque[Snapshot] = deque(maxlen=KEPT)
        self.lost = 0  # calls of this step that were not kept
        self.buffers: weakref.WeakKeyDictionary[nn.Module, Buffers] = weakref.WeakKeyDictionary()
        self.changing: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules that change their inputs
        self.loss = LossSide()
        self.shelf = Shelf(os.environ.get(wire.ENV_REPLAYS), host.environment.rank)
        self.running: Snapshot | None = None
        self.began, self.spent = time.monotonic(), 0.0
        self.passed = self.behind = (
            False  # a boundary was passed: since then no forward, no backward pass began
        )
        self.explaining: Explaining | None = None

    def install(self) -> Iterable[Callable[[], object]]:
        """Follow labels, and the steps that a scaler skips."""

        def wrap(update: Callable[..., Any]) -> Callable[..., Any]:
            def updated(scaling: Any, *args: Any, **kwargs: Any) -> Any:
                self.passed = True
                return update(scaling, *args, **kwargs)

            return updated

        return (replace_attribute(torch.amp.GradScaler, "update", wrap), labels.install(), self.forget)

    def forward_began(self, call: Call) -> None:
        """Keep what a call begins from: not of a CUDA graph that is captured, nor within `torch.func`."""
        self.running = None
        if self.passed:
            self.forget(call.step)
        if capturing() or torch._C._are_functorch_transforms_active():  # noqa: SLF001 - nothing public tells
            return
        kept = self.buffers.get(call.module)
        if kept is None:
            kept = self.buffers[call.module] = Buffers()
        self.lost += len(self.calls) == KEPT
        self.running = snapshot.take(call, kept, copies=call.module in self.changing)
        self.calls.append(self.running)

    def forward_ended(self, call: Call, output: Any) -> None:
        """Ask for the gradients that come back."""
        taken = self.running
        if taken is None:
            return
        self.running = None
        self.loss.began_behind(taken.ended_with(output))
        if self.buffers[call.module].fresh and taken.stale() is not None:
            self.changing.add(call.module)

    def forget(self, step: int | None = None) -> None:
        """Let go of what is behind: calls whose gradients came back, and those of long ago."""
        self.passed, self.behind, self.explaining, self.lost = False, False, None, 0
        self.loss.forget()
        kept = [call for call in self.calls if step is not None and not call.used and call.step >= step - 1]
        self.calls = deque(kept, maxlen=KEPT)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """
        Keep what the loss was made by.

        Where no module was called since the last update, as within a compiled function, what is kept is of
        an earlier step, unless this pass comes through it once more.
        """
        if self.behind:
            self.behind, self.explaining = False, None
            self.loss.forget()
            for call in self.calls:
                call.current = False
        self.loss.backward_began(tensors)

    def boundary(self, moment: Moment) -> Iterable[object]:  # noqa: ARG002 - as all watches have it
        """Note that what was kept belongs to a step that is complete."""
        self.passed = self.behind = True
        return ()

    def explain(self, moment: Moment, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Run the step again where one of these findings is explained by it."""
        if not any(finding.kind in EXPLAINED and finding.severity != "info" for finding in findings):
            return findings
        began = time.monotonic()
        if self.explaining is None:
            calls = list(self.calls) if self.spent < FREE + SHARE * (began - self.began) else None
            self.explaining = Explaining(calls, self.loss, self.lost, self.shelf)
        explained = self.explaining.of(moment, findings)
        self.spent += time.monotonic() - began
        return explained

    def failed(self, finding: Finding) -> Finding:
        """Run the step again where torch's anomaly mode ended it."""
        if ANOMALY not in finding.message:
            return finding
        explaining = Explaining(list(self.calls), self.loss, self.lost, self.shelf)
        return explaining.of_failure(self.host.losses.place, finding)
