"""The optimizers that a program makes: told as soon as their constructor is done."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from stepwarden.agent.hooks.replacing import replace_attribute


def install(made: Callable[[Optimizer], None]) -> Callable[[], None]:
    """Wrap the constructor of all optimizers; return what undoes it. `made` must not raise."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def watched(self: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if not torch.compiler.is_compiling():
                made(self)

        return watched

    return replace_attribute(Optimizer, "__init__", wrap)
