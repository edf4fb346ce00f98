"""
What a program does with its GradScalers, told as it happens; and their scales, without waiting for a device.

The methods are wrapped on the classes, on those that override them as well (fairscale's and FSDP's sharded
scalers do), and undone. A call that one of them makes of another is told too: `step` unscales.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.amp import GradScaler

from stepwarden.agent.looks.reading import capturing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """
    Who is told. None of these may raise; none is called of a scaler that is switched off.

    `scaling(scaler, losses)` and `scaled(scaler, losses, outcomes)` stand before and behind `scale`,
    `unscaling(scaler, optimizer)` before `unscale_`, `stepping` and `passed` (the same) around `step`,
    `updated(scaler)` behind `update`, `read(scaler, scale)` behind the program's own look at a scale.
    """

    scaling: Callable[..., None]
    scaled: Callable[..., None]
    unscaling: Callable[..., None]
    stepping: Callable[..., None]
    passed: Callable[..., None]
    updated: Callable[..., None]
    read: Callable[..., None]


class Later:
    """One number of a device: there at once on the CPU, and else when its copy has arrived."""

    __slots__ = ("event", "host")

    def __init__(self, value: Tensor) -> None:
        """Begin the copy; waits for nothing."""
        self.event: Any = None
        self.host = value.detach()
        if value.device.type != "cpu":
            self.host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self.host.copy_(value.detach(), non_blocking=True)
            self.event = getattr(torch, value.device.type).Event()
            self.event.record()

    def value(self) -> float | None:
        """Return the number, or None while it isn't there."""
        if self.event is None or self.event.query():
            return float(self.host.item())
        return None


class Scale:
    """What the host knows of one scaler's scale: on an accelerator the last one that arrived."""

    __slots__ = ("known", "sent")

    def __init__(self, scaler: GradScaler) -> None:
        """Begin with the scale that the scaler was made with."""
        self.known: float = float(getattr(scaler, "_init_scale", 1.0))
        self.sent: Later | None = None

    def look(self, scaler: GradScaler) -> float:
        """Return the scale, waiting for nothing."""
        tensor = scaler._scale  # noqa: SLF001 - `get_scale` would wait for the device
        if tensor is not None and tensor.device.type == "cpu":
            self.known = float(tensor.item())
        elif self.sent is not None and (arrived := self.sent.value()) is not None:
            self.known, self.sent = arrived, None
        return self.known

    def changed(self, scaler: GradScaler) -> None:
        """Stand behind an update: ask for the new scale."""
        tensor = scaler._scale  # noqa: SLF001 - as above
        if tensor is not None and tensor.device.type != "cpu" and not capturing():
            self.sent = Later(tensor)


class Wrapped:
    """The methods that are wrapped, by class and name: what they were, and what they are."""

    def __init__(self, told: Told) -> None:
        """Wrap the class of all scalers and the classes made of it."""
        self.told = told
        self.methods: dict[tuple[type, str], tuple[Any, Any]] = {}
        waiting: list[type] = [GradScaler]
        while waiting:
            cls = waiting.pop()
            self.wrap(cls)
            waiting.extend(cls.__subclasses__())

    def wrap(self, cls: type) -> None:
        """Wrap the methods that a class itself has."""
        for name, how in WRAPPERS.items():
            if name in vars(cls) and (cls, name) not in self.methods:
                original = vars(cls)[name]
                wrapper = how(original, self.told)
                self.methods[cls, name] = (original, wrapper)
                setattr(cls, name, wrapper)

    def undo(self) -> None:
        """Put back what was there."""
        for (cls, name), (original, wrapper) in self.methods.items():
            if vars(cls).get(name) is wrapper:
                setattr(cls, name, original)


def install(told: Told) -> Callable[[], None]:
    """Wrap the scalers' classes, those of later ones when the first is made; return what undoes it."""
    wrapped = Wrapped(told)
    made = GradScaler.__init__

    @functools.wraps(made)
    def init(self: GradScaler, *args: Any, **kwargs: Any) -> None:
        for cls in type(self).__mro__:
            if issubclass(cls, GradScaler):
                wrapped.wrap(cls)
        made(self, *args, **kwargs)

    def undo() -> None:
        wrapped.undo()
        if GradScaler.__init__ is init:
            GradScaler.__init__ = made  # type: ignore[method-assign]  # as it was

    GradScaler.__init__ = init  # type: ignore[method-assign]  # on the class, and undone
    return undo


def silent(scaler: GradScaler) -> bool:
    """Whether nothing is told of a scaler."""
    return torch.compiler.is_compiling() or not getattr(scaler, "_enabled", False)


def scale(original: Callable[..., Any], told: Told) -> Callable[..., Any]:
    """Wrap `scale`."""

    @functools.wraps(original)
    def watched(self: GradScaler, outputs: Any) -> Any:
        if silent(self):
            return original(self, outputs)
        told.scaling(self, outputs)
        outcome = original(self, outputs)
        told.scaled(self, outputs, outcome)
        return outcome

    return watched


def unscale(original: Callable[..., Any], told: Told) -> Callable[..., Any]:
    """Wrap `unscale_`."""

    @functools.wraps(original)
    def watched(self: GradScaler, optimizer: Optimizer) -> Any:
        if not silent(self):
            told.unscaling(self, optimizer)
        return original(self, optimizer)

    return watched


def step(original: Callable[..., Any], told: Told) -> Callable[..., Any]:
    """Wrap `step`."""

    @functools.wraps(original)
    def watched(self: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if silent(self):
            return original(self, optimizer, *args, **kwargs)
        told.stepping(self, optimizer)
        outcome = original(self, optimizer, *args, **kwargs)
        told.passed(self, optimizer)
        return outcome

    return watched


def update(original: Callable[..., Any], told: Told) -> Callable[..., Any]:
    """Wrap `update`."""

    @functools.wraps(original)
    def watched(self: GradScaler, *args: Any, **kwargs: Any) -> Any:
        outcome = original(self, *args, **kwargs)
        if not silent(self):
            told.updated(self)
        return outcome

    return watched


def get_scale(original: Callable[..., Any], told: Told) -> Callable[..., Any]:
    """Wrap `get_scale`."""

    @functools.wraps(original)
    def watched(self: GradScaler) -> Any:
        found = original(self)
        if not silent(self):
            told.read(self, found)
        return found

    return watched


WRAPPERS: dict[str, Callable[[Callable[..., Any], Told], Callable[..., Any]]] = {
    "scale": scale,
    "unscale_": unscale,
    "step": step,
    "update": update,
    "get_scale": get_scale,
}
