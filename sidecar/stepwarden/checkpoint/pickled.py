"""
Reads a checkpoint's pickle without running it.

What a pickle names is never imported: tensors become notes of where their numbers are, and all other
classes and functions become inert objects that keep what they were given. So a checkpoint with
classes of the user's own can be judged where those can't be imported, and a hostile one does nothing.
"""

import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
}
REBUILDERS = {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"}
WRAPPERS = {"_rebuild_parameter", "_rebuild_parameter_with_state", "_rebuild_from_type_v2"}


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage by its key in the archive; `dtype` is empty where its numbers are not floating."""

    key: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A tensor that the pickle would rebuild: a window of a storage, in elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


class Inert:
    """What stands for anything else: its name, and what it was made of."""

    name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> "Inert":  # noqa: PYI034 - Python 3.10 has no Self
        """Keep what it is made with: a pickle may make it without `__init__`."""
        made = object.__new__(cls)
        made.args, made.state, made.items = (*args, *kwargs.values()), None, []
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what `__new__` has kept."""
        self.args: tuple[Any, ...]
        self.state: Any
        self.items: list[Any]
        del args, kwargs

    def __setstate__(self, state: Any) -> None:
        """Keep the state, whatever it is."""
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Take an item, for what is pickled as a kind of dict."""
        self.items.append((key, value))

    def append(self, item: Any) -> None:
        """Take an item, for what is pickled as a kind of list."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Take items."""
        self.items.extend(items)

    def get(self, name: str) -> Any:
        """Return an attribute that the state has, or None."""
        state = self.state[0] or self.state[1] if isinstance(self.state, tuple) else self.state
        return state.get(name) if isinstance(state, Mapping) else None


class Reader(pickle.Unpickler):
    """An unpickler that imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a class or a function."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if name in REBUILDERS:
            return rebuilt
        if name in WRAPPERS:
            return first_tensor
        if module == "torch" and name in STORAGES.values():
            return name
        return type("Inert", (Inert,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        """Return where a storage is: ("storage", its class, key, device, elements)."""
        kind = getattr(pid[1], "name", "").rpartition(".")[2]
        return Storage(key=str(pid[2]), dtype=STORAGES.get(kind, ""))


def rebuilt(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Any:
    """Note a tensor; one whose dtype is said apart (`_rebuild_tensor_v3`) has it among the last arguments."""
    if not isinstance(storage, Storage):
        return None
    named = [each for each in rest if isinstance(each, str) and each in STORAGES.values()]
    return Rebuilt(storage, int(offset), plain(size), plain(stride), storage.dtype or "".join(named[:1]))


def plain(numbers: Any) -> tuple[int, ...]:
    """Read a shape, which may be a torch.Size."""
    if isinstance(numbers, Inert):
        numbers = numbers.args[0] if numbers.args else ()
    return tuple(int(number) for number in numbers)


def first_tensor(*args: Any) -> Any:
    """Return the tensor that a parameter or a subclass wraps."""
    return next((each for each in args if isinstance(each, Rebuilt)), args)


def load(file: IO[bytes]) -> Any:
    """Read a pickle. Raises `ValueError` where it is none, or ends in its middle."""
    try:
        return Reader(file).load()
    except Exception as error:  # a broken pickle raises anything
        message = f"{type(error).__name__}: {error}"
        raise ValueError(message) from error


def walk(value: Any) -> Iterator[tuple[str, Rebuilt]]:
    """Yield the tensors in what was read, with their dotted names, each object once."""
    seen: set[int] = set()
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        name, each = left.pop()
        if isinstance(each, Rebuilt):
            yield name or "tensor", each
        elif isinstance(each, (Mapping, list, tuple, Inert)) and id(each) not in seen:
            seen.add(id(each))
            left += reversed(list(within(each, name)))


def within(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what a thing holds, each with its name."""
    if isinstance(value, Mapping):
        yield from ((f"{name}.{key}" if name else str(key), item) for key, item in value.items())
    elif isinstance(value, Inert):
        yield from ((name, part) for part in (value.args, value.state, value.items))
    else:
        yield from ((f"{name}.{place}" if name else str(place), item) for place, item in enumerate(value))
