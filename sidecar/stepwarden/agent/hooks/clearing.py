"""The calls that clear gradients: `zero_grad` of optimizers and of modules, wrapped on the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.agent.looks.parameters import trained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor


def install(wanted: Callable[[], bool], cleared: Callable[[Iterable[Tensor]], None]) -> Callable[[], None]:
    """Tell `cleared` whose gradients were cleared, while `wanted`; neither may raise. Return the undoing."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            outcome = original(self, *args, **kwargs)
            if not torch.compiler.is_compiling() and wanted():
                cleared(self.parameters() if isinstance(self, nn.Module) else trained(self))
            return outcome

        return zero_grad

    undo = [replace_attribute(cls, "zero_grad", wrap) for cls in (Optimizer, nn.Module)]

    def take_off() -> None:
        for each in undo:
            each()

    return take_off
