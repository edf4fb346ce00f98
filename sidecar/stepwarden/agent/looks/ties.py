"""Places of parameters in modules, and which of them have one parameter together."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from stepwarden.agent.hooks.losses import TORCH, caller

if TYPE_CHECKING:
    from types import FrameType

KEPT = 4096  # parameters, before those that are gone are forgotten
OWN = ("register_parameter", "__setattr__")  # torch's frames between an assignment and the hook


class Place:
    """A parameter's place, by a module that lives and the names from there."""

    __slots__ = ("module", "parts", "put")

    def __init__(self, module: nn.Module, name: str) -> None:
        """Note a place."""
        self.module = weakref.ref(module)
        self.parts = name.split(".")
        self.put: tuple[bool, tuple[str, int] | None] | None = None

    def look(self) -> Tensor | None:
        """Return the parameter that is there now."""
        module = self.module()
        for part in self.parts[:-1]:
            module = module._modules.get(part) if module is not None else None  # noqa: SLF001 - without a module's own __getattr__
        return module._parameters.get(self.parts[-1]) if module is not None else None  # noqa: SLF001 - as above


@dataclass(slots=True, eq=False)
class Tie:
    """Places that had one parameter, or (`memory`) parameters in one memory."""

    original: TensorWeakRef
    places: list[Place] = field(default_factory=list)
    memory: bool = False

    def parted(self) -> list[tuple[Place, Tensor]]:
        """Return the places with their parameters if these are no longer one; nothing if they are."""
        found = [(place, parameter) for place in self.places if (parameter := place.look()) is not None]
        if len(found) < 2:  # noqa: PLR2004 - of a pair
            return []
        first = found[0][1]
        if self.memory:
            apart = any(parameter.data_ptr() != first.data_ptr() for _, parameter in found)
        else:
            apart = any(parameter is not first for _, parameter in found)
        return found if apart else []


class Ties:
    """The ties that a program made, told by torch's hooks on all modules. Keeps nothing alive."""

    def __init__(self) -> None:
        """Begin before the first module is made."""
        self.limit = KEPT
        self.places: dict[int, Tie] = {}
        self.tied: list[Tie] = []

    def parameter(self, owner: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        """Note that a parameter is put into a place: torch calls it, before it is done."""
        if torch.compiler.is_compiling():
            return
        for tie in self.tied:
            for place in tie.places:
                if place.module() is owner and place.parts == [name]:
                    place.put = by_whom(sys._getframe(1))  # noqa: SLF001 - the cheap way to the caller's line
        if parameter is None:
            return
        known = self.places.get(id(parameter))
        if known is None or known.original() is not parameter:
            self.forget()
            known = self.places[id(parameter)] = Tie(TensorWeakRef(parameter))
        known.places = [place for place in known.places if place.look() is parameter]
        if any(place.module() is owner and place.parts == [name] for place in known.places):
            return
        known.places.append(Place(owner, name))
        if len(known.places) > 1 and known not in self.tied:
            self.tied.append(known)

    def module(self, owner: nn.Module, name: str, module: nn.Module | None) -> None:
        """Move a tie's place along where its module is replaced by another one."""
        old = owner._modules.get(name)  # noqa: SLF001 - before it is replaced
        if old is None or module is None or old is module or torch.compiler.is_compiling():
            return
        for tie in self.tied:
            for place in tie.places:
                if place.module() is old and place.parts[0] in module._parameters:  # noqa: SLF001 - its own ones alone
                    place.module = weakref.ref(module)
                    place.put = (False, caller(sys._getframe(1)))  # noqa: SLF001 - as above

    def forget(self) -> None:
        """Forget the parameters that are gone, and whose places are."""
        if len(self.places) > self.limit:
            self.places = {key: tie for key, tie in self.places.items() if tie.original() is not None}
            self.limit = max(KEPT, 2 * len(self.places))


def by_whom(frame: FrameType | None) -> tuple[bool, tuple[str, int] | None]:
    """Say whether the program itself made an assignment (torch may, for a load), and the program's line."""
    while frame is not None and frame.f_code.co_name in OWN and frame.f_code.co_filename.startswith(TORCH):
        frame = frame.f_back
    own = frame is not None and not frame.f_code.co_filename.startswith(TORCH)
    return own, caller(frame)


def existing(roots: list[nn.Module]) -> list[Tie]:
    """Return the ties that some root modules have, by the names from there."""
    found: dict[int, Tie] = {}
    memory: dict[tuple[int, torch.Size], Tie] = {}
    for root in roots:
        for name, parameter in root.named_parameters(remove_duplicate=False):
            tie = found.setdefault(id(parameter), Tie(TensorWeakRef(parameter)))
            tie.places.append(Place(root, name))
            if len(tie.places) == 1 and type(parameter) is nn.Parameter and parameter.data_ptr():
                key = (parameter.data_ptr(), parameter.shape)
                both = memory.setdefault(key, Tie(TensorWeakRef(parameter), memory=True))
                both.places.append(Place(root, name))
    return [tie for tie in (*found.values(), *memory.values()) if len(tie.places) > 1]
