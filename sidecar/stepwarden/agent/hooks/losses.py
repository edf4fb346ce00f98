"""
The loss: the scalars that backward started from, summed since the last step.

`torch.autograd.backward` is wrapped; on an accelerator nothing is read, the sum stays there.
"""

import functools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from stepwarden.agent.looks.scales import scaled_by

TORCH = str(Path(torch.__file__).parent) + os.sep  # not torchvision
OURS = str(Path(__file__).parents[1]) + os.sep


class Losses:
    """What backward started from since the last step, and the line that called it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.total: float | Tensor | None = None
        self.place: tuple[str, int] | None = None
        self.unscaled: tuple[weakref.ref[Tensor], Tensor] | None = None
        self.weighted = False  # whether the backward pass that begins was given the gradients it starts from
        self.began: Callable[[Sequence[Tensor]], None] = lambda _tensors: None
        self.ended: Callable[[], None] = lambda: None

    def started(self, tensors: Any, grad_tensors: Any) -> None:
        """Note what a backward pass starts from."""
        tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.weighted = grad_tensors is not None
        self.began(tensors)
        if grad_tensors is None:
            for tensor in tensors:
                if isinstance(tensor, Tensor) and tensor.numel() == 1:
                    self.add(self.before_scaling(tensor))
            self.place = caller(sys._getframe())  # noqa: SLF001 - the cheap way to the caller's line

    def add(self, loss: Tensor) -> None:
        """Add one scalar: on the CPU its number, elsewhere a new tensor that is not waited for."""
        loss = loss.detach()
        if loss.device.type == "cpu":
            value: float | Tensor = abs(loss.item()) if loss.is_complex() else float(loss.item())
        elif hasattr(loss, "to_local") or loss.is_meta:
            return
        else:
            value = loss.reshape(()).to(torch.float32, copy=True)
        if self.total is not None and type(self.total) is type(value):
            value = self.total + value
        self.total = value

    def before_scaling(self, tensor: Tensor) -> Tensor:
        """Return the loss without a GradScaler's factor, also where it was divided or added up behind it."""
        if self.unscaled is None:
            return tensor
        if self.unscaled[0]() is tensor:
            return self.unscaled[1]
        mark = scaled_by(tensor)
        if mark is None or mark.scale is None:
            return tensor
        return tensor.detach() / mark.scale.to(tensor.device, non_blocking=True)

    def scaled(self, loss: Any, outcome: Any) -> None:
        """Note that a GradScaler made `outcome` of `loss`."""
        if isinstance(loss, Tensor) and isinstance(outcome, Tensor):
            self.unscaled = (weakref.ref(outcome), loss.detach())

    def take(self) -> float | Tensor | None:
        """Return the sum, and begin anew."""
        total, self.total, self.unscaled = self.total, None, None
        return total


def caller(frame: FrameType | None) -> tuple[str, int] | None:
    """Return file and line of the nearest frame outside of torch and of this package."""
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, OURS)):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


def install(losses: Losses, guard: Callable[..., None]) -> Callable[[], None]:
    """Wrap backward and GradScaler; return what undoes it."""
    backward, scale, update = torch.autograd.backward, torch.amp.GradScaler.scale, torch.amp.GradScaler.update

    @functools.wraps(backward)
    def with_loss(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            guard(losses.started, tensors, grad_tensors)
        backward(tensors, grad_tensors, *args, **kwargs)
        if not torch.compiler.is_compiling():
            guard(losses.ended)

    @functools.wraps(scale)
    def with_unscaled(self: Any, outputs: Any) -> Any:
        outcome = scale(self, outputs)
        guard(losses.scaled, outputs, outcome)
        return outcome

    @functools.wraps(update)
    def ending_the_step(self: Any, *args: Any, **kwargs: Any) -> None:
        guard(losses.take)  # of a step that the scaler skipped
        update(self, *args, **kwargs)

    scaler: Any = torch.amp.GradScaler
    torch.autograd.backward = with_loss
    scaler.scale, scaler.update = with_unscaled, ending_the_step

    def undo() -> None:
        torch.autograd.backward = backward
        scaler.scale, scaler.update = scale, update

    return undo
