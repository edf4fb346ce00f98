"""The mode that records operators: it stands between the user's code and torch, and runs each one once."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from stepwarden.agent.trace import operators, patches, standing
from stepwarden.agent.trace.book import Book, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

    from stepwarden.probes.trace import Trace

LIMIT = 100_000  # operators


class Recorder(TorchFunctionMode):
    """
    Records what runs within `with recorder:`, in this thread.

    `look`: also read NaN, Inf and magnitudes of what goes in and out (waits for the device). `lean`:
    only what comes from a tensor that requires a gradient, and custom Functions. `paused`: what runs
    now isn't recorded; `passing`: a backward pass that was called through the mode begins. `why` says
    why it went off, `failed` whether by an error of its own.
    """

    def __init__(self, *, look: bool = False, lean: bool = False, limit: int = LIMIT) -> None:
        """Begin with nothing recorded."""
        super().__init__()
        self.book = Book(look=look, lean=lean)
        self.limit = limit
        self.thread, self.process = threading.get_ident(), os.getpid()
        self.paused = self.passing = self.failed = False
        self.why: str | None = None

    def __enter__(self) -> Recorder:  # noqa: PYI034 - Python 3.10 has no Self
        """Begin to record."""
        self.put_on()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.take_off()

    def put_on(self) -> None:
        """Begin to record, without a block."""
        self.paused = self.passing = False
        if not standing.stands(self):
            patches.arm(self)
            standing.put_on(self)

    def take_off(self) -> None:
        """Stop, and keep nothing of the user's alive."""
        standing.take_off(self)
        patches.disarm(self)
        self.book.values.numbers.clear()

    def resume(self, module: nn.Module) -> None:
        """Go on recording at the beginning of an outermost module call, without a block."""
        self.book.modules.running.clear()
        if self.book.forward is None:
            self.book.forward = len(self.book.values.rows)
        self.put_on()
        self.book.modules.entered(module)

    def halt(self, why: str) -> None:
        """Go off for good, also within the user's code."""
        self.stop(why)
        self.take_off()

    @property
    def full(self) -> bool:
        """Whether more than half of what it takes is recorded."""
        return len(self.book.ops) > self.limit // 2

    @property
    def on(self) -> bool:
        """Whether what runs now is recorded."""
        return (
            self.why is None
            and not self.paused
            and threading.get_ident() == self.thread
            and os.getpid() == self.process
            and not torch._C._are_functorch_transforms_active()  # noqa: SLF001 - nothing public tells
        )

    def stop(self, why: str) -> None:
        """Go off."""
        self.why = self.why or why

    def guard(self, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call one of the recorder's own functions: its error ends the recording, and nothing else."""
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - what torch's own modes use
                return act(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            self.failed = True
            self.stop(f"{type(error).__name__}: {error}")
            return None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator of the user's, and record it."""
        del types
        kwargs = kwargs or {}
        if not self.on or (name := operators.short(function)) in operators.SILENT:
            return function(*args, **kwargs)
        if name == "backward":
            return self.backward(lambda: function(*args, **kwargs))
        if name == "set_grad_enabled":
            self.guard(self.book.switch.turned, on=bool(args and args[0]))
            return function(*args, **kwargs)
        return self.run(name, lambda: function(*args, **kwargs), (args, kwargs))

    def run(
        self, name: str, call: Callable[[], Any], given: Any, changed: Any = (), *, custom: bool = False
    ) -> Any:
        """Run `call` once and record it. `given` and `changed` are nested in lists, tuples and dicts."""
        if len(self.book.ops) >= self.limit:
            self.stop(f"more than {self.limit} operators")
        running: Running | None = self.guard(self.book.begin, name, given, changed, custom=custom)
        try:
            outcome = call()
        finally:
            if running is not None:
                self.book.outer = running.outer
        if running is not None and self.on:
            self.guard(self.book.end, running, outcome)
        return outcome

    def alone(self, name: str, call: Callable[[], Any], given: Any) -> Any:
        """Run and record something that would take another way if it saw a mode."""

        def unseen() -> Any:
            with standing.without(self):
                return call()

        return self.run(name, unseen, given)

    def backward(self, call: Callable[[], Any]) -> Any:
        """Let a backward pass run unseen: what it recomputes was recorded already."""
        self.paused = self.passing = True
        try:
            return call()
        finally:
            self.paused = self.passing = False

    def backward_from(self, tensors: Sequence[Tensor]) -> None:
        """Stand before a backward pass, and note what it starts from; none that a backward pass makes."""
        if self.why is not None or (self.paused and not self.passing):
            return
        if not self.passing:  # not through the mode: nothing tells when it ends
            self.paused = True
            standing.take_off(self)
        self.passing = False
        self.guard(self.book.note_losses, tensors)

    def trace(self, roots: Sequence[nn.Module] = ()) -> Trace:
        """Return what was recorded, with names as the root modules (by default the outermost) have them."""
        return self.book.trace(roots, self.why)
