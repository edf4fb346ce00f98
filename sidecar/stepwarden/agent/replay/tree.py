"""The tensors in what goes into a module call and what comes out: nested tuples, dicts, dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

DEEPEST = 6  # levels: what is nested deeper is no batch


def tensors(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors of a structure, always in the same order."""
    if isinstance(value, Tensor):
        yield value
        return
    for item in parts(value) if depth < DEEPEST else ():
        yield from tensors(item, depth + 1)


def parts(value: Any) -> Iterator[Any]:
    """Yield what a structure holds; nothing for what is none."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple | list):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield getattr(value, field.name, None)


def rebuilt(value: Any, change: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """Return a structure with changed tensors; of what can't be made anew the same object."""
    if isinstance(value, Tensor):
        return change(value)
    if depth >= DEEPEST:
        return value
    if isinstance(value, dict) and type(value) is dict:
        return {key: rebuilt(item, change, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(item, change, depth + 1) for item in value))
    if type(value) in {tuple, list}:
        return type(value)(rebuilt(item, change, depth + 1) for item in value)
    return value
