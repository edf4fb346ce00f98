"""
Where a mode stands among the others: put on and taken off without a `with` block around the user's code.

Torch's modes form a stack, and each block takes off what is on top. So what is put on across the
user's code must be taken off from wherever it is then.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.overrides import TorchFunctionMode


def modes() -> list[Any]:
    """Return the modes of this thread, the outermost first."""
    return [torch._C._get_function_stack_at(index) for index in range(torch._C._len_torch_function_stack())]  # noqa: SLF001 - what torch's own modes use


def foreign(mode: TorchFunctionMode) -> bool:
    """
    Whether a block of the user's may end that took its mode on before this one, and would take this one off.

    A default device is none such: it takes itself off by name.
    """
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    below = itertools.takewhile(lambda one: one is not mode, modes())
    return any(one is not default for one in below)


def stands(mode: TorchFunctionMode) -> bool:
    """Whether a mode is on."""
    return any(one is mode for one in modes())


def put_on(mode: TorchFunctionMode) -> None:
    """Put a mode on top."""
    torch._C._push_on_torch_function_stack(mode)  # noqa: SLF001 - as above


def take_off(mode: TorchFunctionMode) -> int | None:
    """Take a mode off, wherever it is; return how many stood above it, None where it wasn't there."""
    if not stands(mode):
        return None
    above = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:  # noqa: SLF001 - as above
        above.append(top)
    for one in reversed(above):
        put_on(one)
    return len(above)


@contextmanager
def without(mode: TorchFunctionMode) -> Iterator[None]:
    """Run a block without a mode, and put it back to its place."""
    count = take_off(mode)
    try:
        yield
    finally:
        if count is not None:
            above = [torch._C._pop_torch_function_stack() for _ in range(count)]  # noqa: SLF001 - as above
            for one in [mode, *reversed(above)]:
                put_on(one)
