"""
Whether gradients are cleared once a step, on a few of them.

A tensor counts its in-place changes (`_version`). Where the gradient that an update used is the very
tensor to which the next backward pass adds, and that is its first change, nothing cleared it.
`grad.data.zero_()` isn't counted, so a gradient must be nonzero too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from stepwarden.agent.guarded import guarded
from stepwarden.agent.parameters import trained
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import gradient_accumulated_twice
from stepwarden.probes.gradient_accumulated_twice import Accumulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.optim import Optimizer

LOOKED_AT = 8  # parameters of each optimizer
ASKED = 3  # of these, the smallest are asked whether they are nonzero
KEPT = 256  # hooks, before those of parameters that are gone are forgotten


class Followed:
    """One parameter and its gradient: which tensor it was, and in which version."""

    __slots__ = (
        "__weakref__",
        "additions",
        "carried",
        "doubled",
        "gradient",
        "losses",
        "nonzero",
        "parameter",
        "version",
    )

    def __init__(self, parameter: Tensor) -> None:
        """Begin before its first gradient."""
        self.parameter = TensorWeakRef(parameter)
        self.gradient: TensorWeakRef | None = None
        self.version = -1
        self.carried = self.doubled = False
        self.additions = 0
        self.nonzero: Tensor | None = None
        self.losses: list[tuple[TensorWeakRef, int]] = []

    def untouched(self) -> Tensor | None:
        """Return the gradient if nothing changed it since it was noted."""
        parameter = self.parameter()
        gradient = parameter.grad if parameter is not None else None
        if gradient is None or self.gradient is None or gradient._version != self.version:  # noqa: SLF001 - torch has no public name for it
            return None
        return gradient if self.gradient() is gradient else None

    def note(self, gradient: Tensor | None) -> None:
        """Note a gradient as it is now."""
        self.gradient = None if gradient is None else TensorWeakRef(gradient)
        self.version = -1 if gradient is None else gradient._version  # noqa: SLF001 - as above

    def stepped(self) -> None:
        """Begin anew: an update has used the gradient."""
        parameter = self.parameter()
        gradient = parameter.grad if parameter is not None else None
        self.note(gradient)
        self.carried, self.doubled, self.nonzero = gradient is not None, False, None
        self.additions = 0
        self.losses.clear()

    def cleared(self) -> None:
        """Forget what was: somebody else changed the gradient."""
        self.gradient, self.carried, self.doubled = None, False, False
        self.losses.clear()

    def before(self, *, ask: bool) -> None:
        """Look before a backward pass."""
        gradient = self.untouched()
        if gradient is None:
            self.cleared()
        elif ask:
            with torch.no_grad():
                nonzero = gradient.detach().any()
                self.nonzero = nonzero if self.nonzero is None else self.nonzero & nonzero

    def added(self, gradient: Tensor | None, loss: TensorWeakRef | None, passes: int) -> None:
        """Look behind an addition to the gradient."""
        same = self.gradient is not None and gradient is not None and self.gradient() is gradient
        if same and gradient is not None and gradient._version == self.version + 1:  # noqa: SLF001 - as above
            self.additions += 1
        else:
            self.cleared()
        self.note(gradient)
        root = loss() if loss is not None else None
        if root is not None and loss is not None and not self.doubled:
            self.doubled = any(known() is root and which != passes for known, which in self.losses)
            self.losses.append((loss, passes))
            del self.losses[:-LOOKED_AT]


class Hook:
    """The hook of one parameter, for all optimizers that have it."""

    __slots__ = ("followed", "handle", "parameter")

    def __init__(self, parameter: Tensor, added: Callable[[Tensor], None]) -> None:
        """Put it. A parameter's copies and pickles don't have it."""
        self.parameter = TensorWeakRef(parameter)
        self.followed: WeakSet[Followed] = WeakSet()
        self.handle: Any = parameter.register_post_accumulate_grad_hook(added)  # type: ignore[no-untyped-call]  # torch's


class AccumulationWatch(Watch):
    """Follows a few gradients of each optimizer through their hooks."""

    kinds = (gradient_accumulated_twice.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first optimizer is made."""
        super().__init__(host)
        self.followed: WeakKeyDictionary[Optimizer, list[Followed]] = WeakKeyDictionary()
        self.hooks: dict[int, Hook] = {}
        self.loss: TensorWeakRef | None = None
        self.passes = 0
        self.off = False
        self.hook = guarded(host, self.kinds, self.added)

    def install(self) -> Iterable[Callable[[], object]]:
        """Return what takes the parameters' hooks off."""
        return (self.remove,)

    def remove(self) -> None:
        """Take all hooks off."""
        self.off = True
        for hook in self.hooks.values():
            hook.handle.remove()
        self.hooks.clear()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Choose some parameters."""
        self.follow(optimizer, trained(optimizer))

    def follow(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
        """Follow some of an optimizer's parameters, evenly spread."""
        if len(self.hooks) > KEPT:
            self.hooks = {key: hook for key, hook in self.hooks.items() if hook.parameter() is not None}
        able = [each for each in parameters if each.requires_grad and each.is_leaf and not each.is_sparse]
        chosen = sorted(able[:: max(1, -(-len(able) // LOOKED_AT))], key=Tensor.numel)
        self.followed[optimizer] = [Followed(parameter) for parameter in chosen]
        for parameter, followed in zip(chosen, self.followed[optimizer], strict=True):
            hook = self.hooks.get(id(parameter))
            if hook is None or hook.parameter() is not parameter:
                hook = self.hooks[id(parameter)] = Hook(parameter, self.hook)
            hook.followed.add(followed)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Look whether what the last update used is still there."""
        self.passes += 1
        alone = len(tensors) == 1 and isinstance(tensors[0], Tensor) and tensors[0].numel() == 1
        self.loss = TensorWeakRef(tensors[0]) if alone else None
        for followed in self.followed.values():
            asked = 0
            for each in followed:
                if each.gradient is not None:
                    each.before(ask=each.carried and asked < ASKED)
                    asked += each.carried

    def added(self, parameter: Tensor) -> None:
        """Stand behind an addition to a gradient: autograd calls it."""
        if not self.off and not torch.compiler.is_compiling():
            for each in tuple(self.hooks[id(parameter)].followed):
                each.added(parameter.grad, self.loss, self.passes)

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Say how many were carried over or counted twice."""
        followed = [each for each in self.followed.get(moment.optimizer, ()) if each.gradient is not None]
        if self.off or not followed:
            return ()
        carried = [each for each in followed if each.carried and each.additions]
        if not any(bool(each.nonzero) for each in carried if each.nonzero is not None):
            carried = []
        doubled = [each for each in followed if each.doubled]
        bad = carried or doubled
        called = moment.names() if bad else {}
        names = tuple(name for each in bad if (name := called.get(id(each.parameter()))) is not None)
        return (Accumulation(of=len(followed), carried=len(carried), doubled=len(doubled), names=names),)

    def stepped(self, moment: Moment) -> Iterable[object]:
        """Note the gradients that the update has used."""
        followed = self.followed.get(moment.optimizer, [])
        if moment.due and moment.reading.parameters and not any(each.gradient for each in followed):
            self.follow(moment.optimizer, moment.reading.parameters)
            followed = self.followed[moment.optimizer]
        for each in followed:
            each.stepped()
        return ()
