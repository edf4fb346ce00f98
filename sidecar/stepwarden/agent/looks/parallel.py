"""
The DistributedDataParallel wrappers of this process: whom they hold, and how a reduction goes missing.

Reads their attributes only. A wrapper reduces the gradients of the parameters that it was built with, in a
backward pass behind its own forward call, unless that call ran under `no_sync`.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from torch import distributed, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from stepwarden.agent.looks import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from stepwarden.agent.hooks.calls import Call

NAMED = 3  # parameters in a hint
AVERAGING = (  # who averages parameters now and then, instead of gradients at each step
    "torch.distributed.algorithms.model_averaging.averagers",
    "accelerate.local_sgd",
    "torchft.local_sgd",
    "hivemind",
)


class Wrapper:
    """One wrapper. `forwards` and `backwards` say for each pass of this step whether it was to reduce."""

    def __init__(self, outer: DistributedDataParallel, inner: nn.Module) -> None:
        """Remember what it is built with. Its constructor is still at work."""
        self.outer = weakref.ref(outer)
        trainable = [parameter for parameter in inner.parameters() if parameter.requires_grad]
        self.built = {id(parameter): weakref.ref(parameter) for parameter in trainable}
        self.frozen = {id(p): weakref.ref(p) for p in inner.parameters() if not p.requires_grad}
        self.inside = {id(module) for module in inner.modules()}
        self.idle = -1  # boundaries since it was called
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self.idle += 1
        self.forwards: list[bool] = []
        self.backwards: list[bool] = []
        self.bypass: tuple[str, int] | None = None
        self.bypassed = False
        self.place: tuple[str, int] | None = None

    def called(self, call: Call) -> None:
        """Stand behind a forward pass through the wrapper, or past it."""
        outer = self.outer()
        if outer is None:
            return
        if unwrapped(call.module) is outer:
            self.idle = 0
            self.forwards.append(bool(outer.require_backward_grad_sync))
            self.place = self.place or call.place
        else:
            self.bypass = self.bypass or call.place
            self.bypassed = True

    def backward(self) -> None:
        """Stand before a backward pass."""
        if (outer := self.outer()) is not None and self.forwards:
            self.backwards.append(bool(outer.require_backward_grad_sync))

    def holds(self, parameters: Mapping[int, Tensor]) -> bool:
        """Whether some parameters were, or are, the wrapped module's."""
        outer = self.outer()
        if outer is None:
            return False
        old = any(key in self.built and self.built[key]() is one for key, one in parameters.items())
        return old or any(id(parameter) in parameters for parameter in outer.module.parameters())

    def compared(self) -> set[int]:
        """Return the ids of the parameters that replicas have in common: all but those it is to leave out."""
        outer = self.outer()
        if outer is None:
            return set()
        ignored = getattr(outer, "parameters_to_ignore", ())
        return {id(p) for name, p in outer.module.named_parameters() if name not in ignored}

    def all(self) -> set[int]:
        """Return the ids of all parameters that are, or were, in the wrapped module."""
        outer = self.outer()
        current = () if outer is None else outer.module.parameters()
        return {id(parameter) for parameter in current} | self.built.keys() | self.frozen.keys()

    def group(self) -> tuple[str, int]:
        """Return a name of the ranks that hold replicas, and their number."""
        outer = self.outer()
        if outer is None:
            return "", 0
        ranks = distributed.get_process_group_ranks(outer.process_group)
        if ranks == list(range(ranks[0], ranks[-1] + 1)):
            return f"{ranks[0]}-{ranks[-1]}", len(ranks)
        return fingerprint.of_text(map(str, ranks)), len(ranks)

    def relaxed(self) -> str:
        """Say why replicas may use different gradients on purpose; "" where they may not."""
        outer: Any = self.outer()
        for hook, state in getattr(outer, "_comm_hooks", ()):
            if "LocalSGD" in type(state).__name__ or "localSGD" in getattr(hook, "__name__", ""):
                return "its communication hook averages in a part of the ranks (local SGD)"
        loaded = next((name for name in AVERAGING if name in sys.modules), None)
        return f"parameters may be averaged instead of gradients ({loaded} is loaded)" if loaded else ""

    def lasting(self, parameters: Mapping[int, Tensor], called: Mapping[int, str]) -> str:
        """Say which of the optimizer's parameters it can't reduce; "" where there is none."""
        outer = self.outer()
        if outer is None:
            return ""
        current = {id(parameter) for parameter in outer.module.parameters()}
        new = [key for key in parameters if key in current and not self.was_built_with(key, parameters[key])]
        if not new:
            return self.unused(called)
        names = said([called.get(key, "?") for key in new])
        if all(key in self.frozen and self.frozen[key]() is parameters[key] for key in new):
            return (
                f"{names} had requires_grad=False when DistributedDataParallel was made, so it does not "
                "reduce their gradients: unfreeze before wrapping, or wrap again"
            )
        return (
            f"DistributedDataParallel was made before {names} took the place of what it reduces "
            "(load_state_dict(assign=True), or parameters made later): wrap the model after that"
        )

    def was_built_with(self, key: int, parameter: Tensor) -> bool:
        """Whether it reduces the gradient of a parameter."""
        return key in self.built and self.built[key]() is parameter

    def unused(self, called: Mapping[int, str]) -> str:
        """Say which parameters keep a bucket from being complete; "" where there is none."""
        outer = self.outer()
        if outer is None or outer.find_unused_parameters or outer.static_graph:
            return ""
        idle = [
            called.get(key, "?")
            for key, reference in self.built.items()
            if (parameter := reference()) is not None and parameter.grad is None and key in called
        ]
        if not idle:
            return ""
        return (
            f"{said(idle)} got no gradient, so the bucket that it shares with others was never reduced: make "
            "the wrapper with find_unused_parameters=True, or leave out what is not used"
        )

    def passing(self) -> str:
        """Say what went wrong in this step's passes; "" where nothing did."""
        if self.bypassed and not self.forwards:
            return (
                "the model was called past its DistributedDataParallel wrapper, which then reduces nothing: "
                "call the wrapper itself, not its .module"
            )
        if self.forwards and not any(self.forwards) and not any(self.backwards):
            return (
                "every forward pass of this step ran under no_sync(), or with require_backward_grad_sync "
                "off: leave the last micro-batch out of it"
            )
        if self.forwards and self.backwards and self.forwards[-1] != self.backwards[-1]:
            return (
                "require_backward_grad_sync was changed between forward and backward, but "
                "DistributedDataParallel reads it in forward: set it before, or use no_sync() around both"
            )
        return ""


class Parallel:
    """All wrappers that were made since the agent attached."""

    def __init__(self) -> None:
        """Begin with none."""
        self.wrappers: list[Wrapper] = []

    def install(self, made: Callable[[DistributedDataParallel, nn.Module], None]) -> Callable[[], None]:
        """Tell of each wrapper while it is made; return what undoes it."""

        def registered(outer: nn.Module, name: str, inner: nn.Module | None) -> None:
            if name == "module" and inner is not None and isinstance(outer, DistributedDataParallel):
                made(outer, inner)

        return register_module_module_registration_hook(registered).remove

    def find(self, module: nn.Module) -> Wrapper | None:
        """Return the wrapper that a called module is, or is within."""
        module = unwrapped(module)
        for wrapper in self.wrappers:
            if wrapper.outer() is module or id(module) in wrapper.inside:
                return wrapper
        return None

    def holders(self, parameters: Mapping[int, Tensor]) -> list[Wrapper]:
        """Return the wrappers that hold some of an optimizer's parameters; forget those that are gone."""
        self.wrappers = [wrapper for wrapper in self.wrappers if wrapper.outer() is not None]
        return [wrapper for wrapper in self.wrappers if wrapper.holds(parameters)]


def unwrapped(module: nn.Module) -> nn.Module:
    """Take a module out of what torch.compile made of it."""
    inner = module._modules.get("_orig_mod")  # noqa: SLF001 - as torch names it
    return inner if isinstance(inner, nn.Module) else module


def said(names: Sequence[str]) -> str:
    """Name a few parameters."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
