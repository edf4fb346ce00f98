"""The calls that clear gradients: `zero_grad` of optimizers and of modules, wrapped on the classes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor


def install(wanted: Callable[[], bool], cleared: Callable[[Iterable[Tensor]], None]) -> Callable[[], None]:
    """Tell `cleared` whose gradients were cleared, while `wanted`; neither may raise. Return the undoing."""
    undo = [watched(cls, wanted, cleared) for cls in (Optimizer, nn.Module)]

    def take_off() -> None:
        for each in undo:
            each()

    return take_off


def watched(
    cls: type[Any], wanted: Callable[[], bool], cleared: Callable[[Iterable[Tensor]], None]
) -> Callable[[], None]:
    """Wrap one class."""
    original = cls.zero_grad

    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        outcome = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling() and wanted():
            cleared(parameters(self))
        return outcome

    cls.zero_grad = zero_grad

    def undo() -> None:
        if cls.zero_grad is zero_grad:
            cls.zero_grad = original

    return undo


def parameters(of: Optimizer | nn.Module) -> Iterable[Tensor]:
    """Yield the parameters of an optimizer or a module."""
    if isinstance(of, nn.Module):
        yield from of.parameters()
        return
    for group in of.param_groups:
        yield from group["params"]
