"""Which value a tensor holds: known by weak references; a change in place makes a new value."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from stepwarden.probes.trace import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Known = tuple[Any, int, int]
Home = tuple[int, str]  # the key of a module, and the name of one of its parameters
DEPTH = 4  # of lists and dicts in arguments


class Values:
    """The values of one recording. `look`: whether NaN, Inf and magnitudes are read as well."""

    def __init__(self, *, look: bool, home: Callable[[Tensor], Home | None]) -> None:
        """Begin with none. `home` tells which module a parameter is in as it is used."""
        self.home = home
        self.look = look
        self.rows: list[Value] = []
        self.known: dict[int, Known] = {}
        self.held: dict[int, StorageWeakRef] = {}  # so that no other memory gets the same name
        self.holding: dict[int, int] = {}  # by memory: the value that was seen in it last
        self.writers: dict[int, int] = {}  # by memory: the value that was written to it last
        self.numbers: dict[int, tuple[Any, int]] = {}
        self.sources: list[tuple[int, Any]] = []
        self.homes: dict[int, Home] = {}
        self.unnamed = 0  # negative numbers for what has no memory of its own

    def read(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the values that a tensor holds: its own, and what came to its memory in another way."""
        entry = self.known.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            before = self.holding.get(self.memory(tensor))
            value = self.add(tensor)
            self.sources.append((value, weakref.ref(tensor)))
            self.settle(tensor, value)
            return (value,) if before is None else (value, before)
        if entry[2] != version(tensor) or self.rows[entry[1]].requires_grad != tensor.requires_grad:
            return (entry[1], *self.with_writer(tensor, self.add(tensor)))
        self.settle(tensor, entry[1])
        return self.with_writer(tensor, entry[1])

    def settle(self, tensor: Tensor, value: int) -> None:
        """Note where a parameter is used."""
        if value not in self.homes and (home := self.home(tensor)) is not None:
            self.homes[value] = home

    def with_writer(self, tensor: Tensor, value: int) -> tuple[int, ...]:
        """Add the value that was written last to the same memory, by another view of it."""
        if not self.writers:
            return (value,)
        writer = self.writers.get(self.memory(tensor), -1)
        return (value, writer) if writer > value else (value,)

    def add(self, tensor: Tensor) -> int:
        """Make a new value of what a tensor holds now."""
        value = len(self.rows)
        floating = tensor.is_floating_point() or tensor.is_complex()
        row = Value(id=value, floating=floating, requires_grad=tensor.requires_grad)
        self.rows.append(looked(row, tensor) if self.look and floating else row)
        self.known[id(tensor)] = (weakref.ref(tensor), value, version(tensor))
        self.holding[self.memory(tensor)] = value
        return value

    def between(self) -> int:
        """Make a value that no tensor holds, without a gradient."""
        value = len(self.rows)
        self.rows.append(Value(id=value, floating=True, requires_grad=False))
        return value

    def traced(self, thing: Any) -> bool:
        """Whether a thing holds what came from a parameter, as far as was seen."""
        if not isinstance(thing, Tensor):
            return self.of_number(thing) is not None
        return thing.requires_grad or self.last(thing) is not None or self.memory(thing) in self.holding

    def wrote(self, tensor: Tensor) -> int:
        """Make a new value of a tensor that was changed in place; other views of its memory hold it too."""
        value = self.add(tensor)
        self.writers[self.memory(tensor)] = value
        return value

    def memory(self, tensor: Tensor) -> int:
        """Return what tells a tensor's memory from all others; the memory isn't kept alive."""
        try:
            storage = tensor.untyped_storage()
            key = int(storage._cdata)  # noqa: SLF001 - the only name that a storage has
        except (RuntimeError, NotImplementedError, TypeError):  # functional and batched tensors have none
            self.unnamed -= 1
            return self.unnamed
        if key not in self.held:
            self.held[key] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch's
        return key

    def number(self, thing: Any) -> int:
        """Make a value of a number or an array, known again by its identity."""
        value = len(self.rows)
        self.rows.append(Value(id=value, floating=True, requires_grad=False, number=True))
        kept = weakref.ref(thing) if type(thing).__name__ == "ndarray" else lambda: thing
        self.numbers[id(thing)] = (kept, value)
        return value

    def of_number(self, thing: Any) -> int | None:
        """Return the value of a number or an array that came out of a tensor."""
        entry = self.numbers.get(id(thing))
        return entry[1] if entry is not None and entry[0]() is thing else None

    def last(self, tensor: Tensor) -> int | None:
        """Return the value that a tensor holds, if it was seen."""
        entry = self.known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def named(self, names: Mapping[int, str], modules: Mapping[int, str]) -> tuple[Value, ...]:
        """
        Return all values, parameters and buffers with their names.

        What stood in a parameter's place while its module ran (unsharded, as FSDP does it) has its name.
        """
        rows = list(self.rows)
        for value, reference in self.sources:
            home = self.homes.get(value)
            name = names.get(id(tensor)) if (tensor := reference()) is not None else None
            if name is None and home is not None and home[0] in modules:
                name = ".".join(part for part in (modules[home[0]], home[1]) if part)
            rows[value] = replace(rows[value], leaf=name)
        return tuple(rows)


def version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; tensors of inference mode don't count."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - the only count of changes


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
