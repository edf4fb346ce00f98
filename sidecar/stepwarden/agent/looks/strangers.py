"""Trainable parameters that have a gradient and are in no optimizer, and what one has in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from stepwarden.agent.looks import names
from stepwarden.agent.looks.parameters import trained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepwarden.agent.watch import Moment

SCANNED = 256  # items of a plain container


@dataclass(frozen=True, slots=True, eq=False)
class Stranger:
    """
    One of them.

    `path` are the modules from its root to its own; `hidden` means that it is in a plain list,
    tuple or dictionary, where `parameters()` misses it.
    """

    parameter: Tensor
    name: str
    path: tuple[nn.Module, ...]
    hidden: bool = False

    def kin(self, kinds: frozenset[type]) -> bool:
        """Whether it is in a module of one of some classes."""
        return any(type(module) in kinds for module in self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Stale:
    """
    An optimizer's parameters without a gradient that are out of use.

    `lost` are in no living module, `elsewhere` in a root module that has no gradient at all, of
    one of the classes `kinds`.
    """

    lost: int
    elsewhere: int
    kinds: frozenset[type]


def strangers(roots: Sequence[nn.Module], held: frozenset[int]) -> Iterator[Stranger]:
    """Yield the strangers of some root modules, each once, in order of registration."""
    seen = set(held)
    for root in roots:
        for prefix, module in root.named_modules():
            for name, parameter in module._parameters.items():  # noqa: SLF001 - this module's own ones alone
                if parameter is not None and wanted(parameter, seen):
                    seen.add(id(parameter))
                    full = names.clean(f"{prefix}.{name}".lstrip("."))
                    yield Stranger(parameter, full, path(root, prefix))
    for root in roots:
        for name, module, parameter in hidden(root):
            if wanted(parameter, seen):
                seen.add(id(parameter))
                yield Stranger(parameter, names.clean(name), (root, module), hidden=True)


def wanted(parameter: Tensor, seen: set[int]) -> bool:
    """Whether a parameter is trainable, has a gradient and is none of those that were seen."""
    return parameter.requires_grad and parameter.grad is not None and id(parameter) not in seen


def path(root: nn.Module, prefix: str) -> tuple[nn.Module, ...]:
    """Return the modules from a root to the one with a dotted name."""
    modules = [root]
    for part in filter(None, prefix.split(".")):
        modules.append(getattr(modules[-1], part))
    return tuple(modules)


def hidden(root: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Yield the parameters in plain containers of a root's modules, with names and their modules."""
    for prefix, module in root.named_modules():
        for attribute, value in vars(module).items():
            if type(value) in (list, tuple, dict) and not attribute.startswith("_"):
                for key, item in items(value):
                    name = f"{prefix}.{attribute}.{key}".lstrip(".")
                    if isinstance(item, nn.Parameter):
                        yield name, module, item
                    elif isinstance(item, nn.Module):
                        for inner, parameter in item.named_parameters():
                            yield f"{name}.{inner}", item, parameter


def items(container: Any) -> Iterable[tuple[object, object]]:
    """Return the first items of a container with their keys."""
    pairs = container.items() if isinstance(container, dict) else enumerate(container)
    return [pair for _, pair in zip(range(SCANNED), pairs, strict=False)]


def stale(moment: Moment, roots: Sequence[nn.Module]) -> Stale:
    """Look for an optimizer's parameters that are out of use."""
    owner = {id(parameter): root for root in roots for parameter in root.parameters()}
    alive = {id(root) for root in roots if any(parameter.grad is not None for parameter in root.parameters())}
    idle = [each for each in trained(moment.optimizer) if each.grad is None and each.requires_grad]
    lost = sum(id(each) not in owner for each in idle)
    resting = [root for each in idle if (root := owner.get(id(each))) is not None and id(root) not in alive]
    return Stale(lost, len(resting), frozenset(map(type, resting)))
