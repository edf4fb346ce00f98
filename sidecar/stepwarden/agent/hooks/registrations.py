"""
When parameters and modules were registered, in the order in which a program did it.

Told by torch's own hooks on all modules; nothing is put on a module, and nothing is kept alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.weak import TensorWeakRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

KEPT = 4096  # parameters, before those that are gone are forgotten


class Registrations:
    """The order of registration. What was there before the agent attached has none."""

    def __init__(self) -> None:
        """Begin before the first module is made."""
        self.count = 0
        self.limit = KEPT
        self.parameters: dict[int, tuple[TensorWeakRef, int]] = {}
        self.modules: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()

    def parameter(self, _owner: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        """Note a parameter's first registration."""
        self.count += 1
        if parameter is not None and self.when(parameter) is None:
            if len(self.parameters) > self.limit:
                self.forget()
            self.parameters[id(parameter)] = (TensorWeakRef(parameter), self.count)

    def module(self, _owner: nn.Module, _name: str, module: nn.Module | None) -> None:
        """Note a module's first registration in another one."""
        self.count += 1
        if module is not None:
            self.modules.setdefault(module, self.count)

    def forget(self) -> None:
        """Forget the parameters that are gone."""
        self.parameters = {key: kept for key, kept in self.parameters.items() if kept[0]() is not None}
        self.limit = max(KEPT, 2 * len(self.parameters))

    def when(self, parameter: Tensor) -> int | None:
        """Return a parameter's place in the order."""
        known = self.parameters.get(id(parameter))
        return known[1] if known is not None and known[0]() is parameter else None

    def frozen(self) -> frozenset[int]:
        """Return the ids of the living parameters that want no gradient."""
        living = ((key, known[0]()) for key, known in self.parameters.items())
        return frozenset(
            key for key, parameter in living if parameter is not None and not parameter.requires_grad
        )

    def install(
        self, guard: Callable[[Callable[..., object]], Callable[..., None]]
    ) -> list[Callable[[], None]]:
        """Put the hooks, guarded; return what takes them off."""
        handles = (
            register_module_parameter_registration_hook(guard(self.parameter)),
            register_module_module_registration_hook(guard(self.module)),
        )
        return [handle.remove for handle in handles]
