"""
Which rank it began on: each gradient's norm before the reduction makes it everybody's.

A hook on each parameter of a DistributedDataParallel runs between accumulation and reduction. The reducer
writes what it reduced into the gradients in a callback at the end of the backward pass; ours is queued
earlier, and takes all norms in one fused call. Where gradients are views of the reducer's buckets they are
reduced in place meanwhile: then each norm is taken in its hook. None is read before a step was bad.
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

from stepwarden.agent.looks.gradients import dense, fused


class Local:
    """The norms of this rank's own gradients since the last step, in their order of accumulation."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.norms: dict[int, Tensor] = {}
        self.pending: dict[int, Tensor] = {}  # parameters whose norm is still to be taken
        self.task = -1  # the backward pass at whose end that is
        self.handles: list[Any] = []
        self.watched: dict[int, weakref.ref[Tensor]] = {}
        self.seconds = 0.0
        self.last = 0.0  # when this rank's own work in a backward pass was done so far (`time.perf_counter`)

    def watch(self, module: nn.Module, guard: Callable[..., None], *, views: Callable[[], bool]) -> None:
        """Put a hook on each trainable parameter; `views` tells whether gradients are views of buckets."""
        settle = functools.partial(guard, self.passed)
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self.watched:
                hook = functools.partial(guard, self.accumulated, views, settle)
                self.handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]  # torch's
                self.watched[id(parameter)] = weakref.ref(parameter)

    def accumulated(self, views: Callable[[], bool], settle: Callable[[], None], parameter: Tensor) -> None:
        """Note that a gradient was just accumulated."""
        if torch.compiler.is_compiling() or parameter.grad is None:
            return
        began = time.perf_counter()
        self.pending.pop(id(parameter), None)  # its place is that of its last accumulation
        self.pending[id(parameter)] = parameter
        task = torch._C._current_graph_task_id()  # noqa: SLF001 - the backward pass that runs
        if views():
            self.settle()
        elif task != self.task:
            self.task = task
            torch.autograd.Variable._execution_engine.queue_callback(settle)  # noqa: SLF001 - as torch's own DDP does
        self.last = time.perf_counter()
        self.seconds += self.last - began

    def passed(self) -> None:
        """Stand at the end of a backward pass."""
        began = time.perf_counter()
        self.settle()
        self.last = time.perf_counter()
        self.seconds += self.last - began

    def settle(self) -> None:
        """Take the norms of the gradients that were accumulated since the last time."""
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
        for key, parameter in self.pending.items():
            if parameter.grad is not None:
                gradient = dense(parameter.grad.detach())
                groups.setdefault((gradient.device, gradient.dtype), []).append((key, gradient))
        found: dict[int, Tensor] = {}
        for (_, dtype), members in groups.items():
            taken = fused([gradient for _, gradient in members], dtype)
            found.update(zip((key for key, _ in members), taken, strict=True))
        for key in self.pending:
            self.norms.pop(key, None)
        self.norms.update((key, found[key]) for key in self.pending if key in found)
        self.pending = {}

    def take(self) -> tuple[dict[int, Tensor], float]:
        """Return the norms by parameter id, and the seconds that taking them took; begin the next step."""
        norms, seconds = self.norms, self.seconds
        self.norms, self.seconds, self.pending = {}, 0.0, {}
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

    def watch(inner: nn.Module, views: Callable[[], bool]) -> None:
        local.watch(inner, guard, views=views)

    def registered(outer: nn.Module, name: str, inner: nn.Module | None) -> None:
        if name == "module" and inner is not None and isinstance(outer, DistributedDataParallel):
            reducer = weakref.ref(outer)
            guard(watch, inner, lambda: getattr(reducer(), "gradient_as_bucket_view", True))

    handle = register_module_module_registration_hook(registered)

    def undo() -> None:
        handle.remove()
        local.remove()

    return undo
