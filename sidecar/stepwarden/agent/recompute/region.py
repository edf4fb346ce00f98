"""One call of `torch.utils.checkpoint.checkpoint`, followed in forward and in its first recomputation."""

from __future__ import annotations

import functools
import inspect
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from stepwarden.agent.looks.reading import capturing
from stepwarden.agent.recompute.trace import Trace, flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Region:
    """
    Stands in for the function that is checkpointed. `compare` gets both runs.

    `follow` is whether operators are followed: not where some function is compiled, as a mode would
    have it compiled anew. Then only what goes in and comes out is compared.
    """

    def __init__(
        self, function: Callable[..., Any], compare: Callable[[Trace, Trace], None], *, follow: bool
    ) -> None:
        """Begin before the forward pass."""
        self.function, self.compare, self.follow = function, compare, follow
        self.first: Trace | None = None
        self.done = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function: the first time is the forward pass."""
        if self.done or torch.compiler.is_compiling() or traced() or capturing():
            return self.function(*args, **kwargs)
        trace = Trace(Region.__call__.__code__)
        trace.guarded(trace.begin, flat((*args, *kwargs.values())))
        try:
            with trace if self.follow else nullcontext():
                output = self.function(*args, **kwargs)
            trace.guarded(trace.end, output)
            return output
        finally:  # a recomputation that has what it needs is stopped by an exception
            self.ran(trace)

    def ran(self, trace: Trace) -> None:
        """Keep the first run, and compare the second one with it."""
        if self.first is None:
            self.first = trace
        else:
            self.done = True
            first, self.first = self.first, None
            trace.guarded(self.compare, first, trace)


def traced() -> bool:
    """Whether operators are being recorded for another program, in which ours have no place."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]  # torch's


def parts(function: Any) -> Iterator[Any]:
    """Yield what a function is made of, as far as it lives longer than one call."""
    if isinstance(function, nn.Module):
        yield function
    elif isinstance(function, functools.partial):
        yield from parts(function.func)
        yield from (value for value in function.args if isinstance(value, nn.Module | int))
    elif inspect.ismethod(function):
        yield function.__self__
        yield function.__func__.__code__ if inspect.isfunction(function.__func__) else None
    elif inspect.isfunction(function):
        yield function.__code__
        for cell in function.__closure__ or ():
            value = contents(cell)
            if inspect.ismethod(value):
                yield from parts(value)
            elif isinstance(value, nn.Module | int):
                yield value


def contents(cell: Any) -> Any:
    """Return what a closure refers to; None where that is not set."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
