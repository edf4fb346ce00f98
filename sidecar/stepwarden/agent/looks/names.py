"""
What a parameter is called: by the root module that owns it, without the names of wrappers.

Looks through all living objects, so it is asked at the first step and when something is wrong.
"""

import gc
from collections.abc import Collection, Iterator, Mapping

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def clean(name: str) -> str:
    """Take wrappers out of a dotted name."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def living() -> list[nn.Module]:
    """Return all modules that live in this process."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]


def roots(modules: Collection[nn.Module]) -> list[nn.Module]:
    """Return the modules that no other one contains, without the wrapper for data parallelism."""
    inner = {id(child) for module in modules for child in module.children() if child is not module}
    return [unwrapped(module) for module in modules if id(module) not in inner]


def unwrapped(module: nn.Module) -> nn.Module:
    """Take a module out of data parallel wrappers and of a compiled module."""
    while True:
        if isinstance(module, DataParallel | DistributedDataParallel):
            module = module.module
        elif isinstance(inner := module._modules.get("_orig_mod"), nn.Module):  # noqa: SLF001 - as torch names it
            module = inner
        else:
            return module


def owners(parameters: Collection[Tensor]) -> list[nn.Module]:
    """Return the root modules that hold some of the parameters, those that hold most of them first."""
    wanted = {id(parameter) for parameter in parameters}
    held = [
        (sum(id(parameter) in wanted for parameter in root.parameters()), root) for root in roots(living())
    ]
    return [root for count, root in sorted(held, key=lambda pair: -pair[0]) if count]


def names(modules: Collection[nn.Module]) -> Mapping[int, str]:
    """Return the names of the parameters of some root modules, by id, in order of registration."""
    found: dict[int, str] = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            found.setdefault(id(parameter), clean(name))
    return found


def buffers(modules: Collection[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of some root modules, with their names."""
    for module in modules:
        for name, buffer in module.named_buffers():
            yield clean(name), buffer
