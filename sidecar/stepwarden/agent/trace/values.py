"""Which value a tensor holds: known by weak references; a change in place makes a new value."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.probes.trace import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Known = tuple[Any, int, int]
DEPTH = 4  # of lists and dicts in arguments


class Values:
    """The values of one recording. `look`: whether NaN, Inf and magnitudes are read as well."""

    def __init__(self, *, look: bool) -> None:
        """Begin with none."""
        self.look = look
        self.rows: list[Value] = []
        self.known: dict[int, Known] = {}
        self.writers: dict[int, int] = {}
        self.numbers: dict[int, tuple[Any, int]] = {}
        self.sources: list[tuple[int, Any]] = []

    def read(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the values that a tensor holds: its own, and what was written to its memory since."""
        entry = self.known.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            value = self.add(tensor)
            self.sources.append((value, weakref.ref(tensor)))
            return self.with_writer(tensor, value)
        if entry[2] != version(tensor) or self.rows[entry[1]].requires_grad != tensor.requires_grad:
            return (entry[1], *self.with_writer(tensor, self.add(tensor)))
        return self.with_writer(tensor, entry[1])

    def with_writer(self, tensor: Tensor, value: int) -> tuple[int, ...]:
        """Add the value that was written last to the same memory, by another view of it."""
        if not self.writers:
            return (value,)
        writer = self.writers.get(memory(tensor), -1)
        return (value, writer) if writer > value else (value,)

    def add(self, tensor: Tensor) -> int:
        """Make a new value of what a tensor holds now."""
        value = len(self.rows)
        floating = tensor.is_floating_point() or tensor.is_complex()
        row = Value(id=value, floating=floating, requires_grad=tensor.requires_grad)
        self.rows.append(looked(row, tensor) if self.look and floating else row)
        self.known[id(tensor)] = (weakref.ref(tensor), value, version(tensor))
        return value

    def wrote(self, tensor: Tensor) -> int:
        """Make a new value of a tensor that was changed in place; other views of its memory hold it too."""
        value = self.add(tensor)
        if key := memory(tensor):
            self.writers[key] = value
        return value

    def number(self, thing: Any) -> int:
        """Make a value of a number or an array, known again by its identity."""
        value = len(self.rows)
        self.rows.append(Value(id=value, floating=True, requires_grad=False, number=True))
        self.numbers[id(thing)] = (thing, value)
        return value

    def of_number(self, thing: Any) -> int | None:
        """Return the value of a number or an array that came out of a tensor."""
        entry = self.numbers.get(id(thing))
        return entry[1] if entry is not None else None

    def last(self, tensor: Tensor) -> int | None:
        """Return the value that a tensor holds, if it was seen."""
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def named(self, names: Mapping[int, str]) -> tuple[Value, ...]:
        """Return all values, parameters and buffers with their names."""
        rows = list(self.rows)
        for value, reference in self.sources:
            tensor = reference()
            if tensor is not None and id(tensor) in names:
                rows[value] = replace(rows[value], leaf=names[id(tensor)])
        return tuple(rows)


def version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; tensors of inference mode don't count."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - the only count of changes


def memory(tensor: Tensor) -> int:
    """Return what tells a tensor's memory from others, 0 where it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the only name that a storage has
    except (RuntimeError, NotImplementedError, TypeError):
        return 0


@torch.no_grad()
def looked(row: Value, tensor: Tensor) -> Value:
    """Read whether a tensor is finite, and its magnitude. Waits for its device."""
    values = tensor.detach()
    local = getattr(values, "to_local", None)
    values = local() if local is not None else values
    if values.layout is not torch.strided or values.is_meta or not values.numel():
        return row
    if values.element_size() < 2:  # noqa: PLR2004 - float8 has no arithmetic
        values = values.float()
    infinite = values.isinf()
    positive = values.isposinf() if not values.is_complex() else infinite
    size = values.abs()
    largest = torch.where(torch.isfinite(size), size, torch.zeros_like(size)).amax().float()
    nan, inf, plus = torch.stack([values.isnan().any(), infinite.any(), positive.any()]).tolist()
    return replace(row, nan=nan, inf=inf, neg_inf_only=inf and not plus, largest=largest.item())


def leaves(thing: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Yield what lists, tuples and dicts hold."""
    if isinstance(thing, dict):
        thing = tuple(thing.values())
    if not isinstance(thing, tuple | list):
        if thing is not None:
            yield thing
    elif depth:
        for item in thing:
            yield from leaves(item, depth - 1)
