"""
Which rank it began on: each gradient's norm before the reduction makes it everybody's.

A hook on each parameter of a DistributedDataParallel runs between accumulation and reduction.
It keeps one detached norm, and reads none: they are looked at once a step was bad.
"""

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from stepwarden.agent.looks.gradients import LOWER, dense


class Local:
    """The norms of this rank's own gradients since the last step, in their order of accumulation."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.norms: dict[int, Tensor] = {}
        self.handles: list[Any] = []
        self.watched: dict[int, weakref.ref[Tensor]] = {}
        self.seconds = 0.0
        self.last = 0.0  # when a gradient was accumulated (`time.perf_counter`): what is behind it is waiting

    def watch(self, module: nn.Module, guard: Callable[..., None]) -> None:
        """Put a hook on each trainable parameter."""
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self.watched:
                hook = functools.partial(guard, self.accumulated)
                self.handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]  # torch's
                self.watched[id(parameter)] = weakref.ref(parameter)

    def accumulated(self, parameter: Tensor) -> None:
        """Keep the norm of a gradient that was just accumulated."""
        if torch.compiler.is_compiling() or parameter.grad is None:
            return
        began = time.perf_counter()
        gradient = dense(parameter.grad.detach())
        dtype = torch.float32 if gradient.dtype in LOWER else None
        self.norms.pop(id(parameter), None)  # its place is that of its last accumulation
        self.norms[id(parameter)] = torch.linalg.vector_norm(gradient, dtype=dtype)
        self.last = time.perf_counter()
        self.seconds += self.last - began

    def take(self) -> tuple[dict[int, Tensor], float]:
        """Return the norms by parameter id, and the seconds that taking them took; begin the next step."""
        norms, seconds = self.norms, self.seconds
        self.norms, self.seconds = {}, 0.0
        return norms, seconds

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.watched.clear()


def install(local: Local, guard: Callable[..., None]) -> Callable[[], None]:
    """
    Watch every module that becomes the inner one of a DistributedDataParallel; return what undoes it.

    A hook on the registration of submodules, rather than a wrapped constructor: that would be a
    frame of ours in the warnings that torch attributes to its caller.
    """

    def registered(outer: nn.Module, name: str, inner: nn.Module | None) -> None:
        if name == "module" and inner is not None and isinstance(outer, DistributedDataParallel):
            guard(local.watch, inner, guard)

    handle = register_module_module_registration_hook(registered)

    def undo() -> None:
        handle.remove()
        local.remove()

    return undo
