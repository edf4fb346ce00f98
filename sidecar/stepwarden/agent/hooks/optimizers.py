"""The optimizers that a program makes: told as soon as their constructor is done."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


def install(made: Callable[[Optimizer], None]) -> Callable[[], None]:
    """Wrap the constructor of all optimizers; return what undoes it. `made` must not raise."""
    original = Optimizer.__init__

    @functools.wraps(original)
    def watched(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not torch.compiler.is_compiling():
            made(self)

    Optimizer.__init__ = watched  # type: ignore[method-assign]  # on the class, and undone

    def undo() -> None:
        if Optimizer.__init__ is watched:
            Optimizer.__init__ = original  # type: ignore[method-assign]  # as it was

    return undo
