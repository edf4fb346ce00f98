"""
The outermost module calls: what a training's forward passes are, whoever makes them.

`nn.Module.__call__` is wrapped on the class, so that nothing of it is pickled, copied, scripted or
compiled with a model. Calls without gradients, and those of other threads, are left alone.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.replacing import replace_attribute


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """
    One outermost call of a module (a wrapper, as DistributedDataParallel, where there is one).

    `step` is the step that it belongs to, `place` the user's line that called.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    place: tuple[str, int] | None


class Replaying(threading.local):
    """Whether this thread makes calls of ours, which no watch may take for the training's."""

    now = False


REPLAYING = Replaying()


@contextmanager
def unwatched() -> Iterator[None]:
    """Make module calls that no watch is told of."""
    before, REPLAYING.now = REPLAYING.now, True
    try:
        yield
    finally:
        REPLAYING.now = before


Around = Callable[[Callable[..., Any], nn.Module, tuple[Any, ...], dict[str, Any]], Any]

AROUND: list[Around] = []
"""What stands around module calls for a while; the wrapper stays, as compiled code is guarded on it."""


class Calls:
    """Tells `began` and `ended` of each outermost call. Both are guarded by who gives them."""

    def __init__(
        self, step: Callable[[], int], began: Callable[[Call], None], ended: Callable[[Call, Any], None]
    ) -> None:
        """Watch the calls of this thread."""
        self.step, self.began, self.ended = step, began, ended
        self.thread = threading.get_ident()
        self.inside = False

    def left_alone(self) -> bool:
        """Whether a call is none of ours."""
        return (
            self.inside
            or REPLAYING.now
            or not torch.is_grad_enabled()
            or threading.get_ident() != self.thread
        )

    def install(self) -> Callable[[], None]:
        """Wrap the call of all modules; return what undoes it."""
        return replace_attribute(nn.Module, "__call__", self.wrap)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands in the place of a module's call."""

        def told(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.left_alone():
                return original(module, *args, **kwargs)
            place = caller(sys._getframe(1))  # noqa: SLF001 - the cheap way to the caller's line
            call = Call(module=module, args=args, kwargs=kwargs, step=self.step(), place=place)
            self.inside = True
            try:
                self.began(call)
                output = original(module, *args, **kwargs)
                self.ended(call, output)
            finally:
                self.inside = False
            return output

        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # before all else: what is read here would be guarded on
                return original(module, *args, **kwargs)
            if AROUND:
                return AROUND[-1](told, module, args, kwargs)
            return told(module, *args, **kwargs)

        watched.__stepwarden__ = True  # type: ignore[attr-defined]  # a mark
        return watched
