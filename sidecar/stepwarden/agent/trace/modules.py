"""Which modules are running while a step is recorded. Modules are known by weak references."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import nn

from stepwarden.agent.looks.names import unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Modules:
    """The modules that run, the innermost last, and those that ran."""

    def __init__(self) -> None:
        """Begin outside of all modules."""
        self.running: list[int] = []
        self.seen: dict[int, weakref.ref[nn.Module]] = {}
        self.outer: dict[int, None] = {}

    def entered(self, module: nn.Module) -> None:
        """Stand at the beginning of a module's call."""
        if not self.running:
            self.outer[id(module)] = None
        self.running.append(id(module))
        self.seen[id(module)] = weakref.ref(module)

    def left(self, module: nn.Module) -> None:
        """Stand at its end, however it ended; what began within is over as well."""
        if id(module) in self.running:
            while self.running.pop() != id(module):
                pass

    def home(self, tensor: Tensor) -> tuple[int, str] | None:
        """Return the module that runs and has a tensor among its parameters, and its name there."""
        if not isinstance(tensor, nn.Parameter):
            return None
        for key in reversed(self.running):
            module = self.seen[key]()
            for name, parameter in module._parameters.items() if module is not None else ():  # noqa: SLF001 - as torch names it
                if parameter is tensor:
                    return key, name
        return None

    def current(self) -> int | None:
        """Return the key of the innermost module that runs."""
        return self.running[-1] if self.running else None

    def training(self) -> bool | None:
        """Whether the innermost module that runs is in training mode."""
        module = self.seen[self.running[-1]]() if self.running else None
        return module.training if module is not None else None

    def outermost(self) -> list[nn.Module]:
        """Return the modules that no other one called, without wrappers."""
        living = [module for key in self.outer if (module := self.seen[key]()) is not None]
        return list({id(inner): inner for inner in map(unwrapped, living)}.values())

    def name(self, key: int | None, called: Mapping[int, str]) -> str | None:
        """Return the name of a module: of its own, or None for a wrapper and for a root."""
        module: Any = self.seen[key]() if key is not None else None
        return called.get(id(module)) or None
