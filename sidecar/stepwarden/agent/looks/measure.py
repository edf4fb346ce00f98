"""
By what factor the used gradients differ from the mean over ranks: one weighted sum, before and after.

A norm can't tell it, as a mean of unlike gradients is shorter than they are; a sum over the elements of one
gradient can, to the last digits, and the mean of the ranks' sums is the sum of their mean.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stepwarden.agent.looks.fingerprint import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST = 4096  # elements
FIRST, EVERY, ON_END = 20, 20, 4  # steps that are measured: the first ones, then some on end


class Measure:
    """One parameter of each wrapper, and its gradient's sum in this step before the reduction."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.watched: dict[int, weakref.ref[Tensor]] = {}
        self.handles: list[Any] = []
        self.own: dict[int, Tensor] = {}
        self.weights: Tensor | None = None
        self.steps: dict[int, int] = {}

    def watch(self, inner: nn.Module, accumulated: Callable[..., None]) -> None:
        """Choose a small parameter of a module that is being wrapped; `accumulated` is guarded."""
        usable = [one for one in inner.parameters() if one.requires_grad and one.is_leaf and plain(one)]
        if not usable:
            return
        chosen = min(usable, key=lambda one: (one.ndim != 1, one.numel() < 4, one.numel()))  # noqa: PLR2004
        self.watched[id(chosen)] = weakref.ref(chosen)
        self.handles.append(chosen.register_post_accumulate_grad_hook(accumulated))  # type: ignore[no-untyped-call]  # torch's

    def accumulated(self, parameter: Tensor) -> None:
        """Take the sum of what was accumulated so far: the reduction comes behind this."""
        if self.on(id(parameter)) and parameter.grad is not None and not torch.compiler.is_compiling():
            self.own[id(parameter)] = self.total(parameter.grad)

    def on(self, key: int) -> bool:
        """Whether this step of a parameter is measured."""
        steps = self.steps.get(key, 0)
        return steps < FIRST or steps % EVERY < ON_END

    def total(self, gradient: Tensor) -> Tensor:
        """Return the weighted sum over a gradient's first elements."""
        with torch.no_grad():
            dtype = torch.float64 if gradient.device.type == "cpu" else torch.float32
            flat = gradient.detach().reshape(-1)[:MOST].to(dtype)
            if self.weights is None or self.weights.device != flat.device or len(self.weights) < len(flat):
                self.weights = torch.cos(torch.arange(len(flat), device=flat.device, dtype=flat.dtype))
            return torch.dot(flat, self.weights[: len(flat)].to(flat.dtype))

    def read(
        self, scale: float | None, parameters: Sequence[Tensor], *, single: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """
        Return the sums before and after the reduction, of one of these parameters; None where not measured.

        `scale` is what the losses were multiplied by. Where it may be another optimizer's, or lag behind on
        an accelerator, nothing is said.
        """
        for parameter in parameters if self.own else ():
            own = self.own.get(id(parameter))
            if own is None or parameter.grad is None or self.watched[id(parameter)]() is not parameter:
                continue
            if scale is None:
                return own, self.total(parameter.grad)
            if single and own.device.type == "cpu":
                return own / scale, self.total(parameter.grad)
        return None, None

    def begin(self, parameters: Sequence[Tensor]) -> None:
        """Begin a step of these parameters."""
        for parameter in parameters:
            self.steps[id(parameter)] = self.steps.get(id(parameter), 0) + 1
            self.own.pop(id(parameter), None)

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
