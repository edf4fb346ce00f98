"""
Whether gradients are cleared once a step, on a few of them.

A tensor counts its in-place changes (`_version`). Where the gradient that an update used is the very
tensor to which the next backward pass adds, and that is its first change, nothing cleared it.
`grad.data.zero_()` isn't counted, so a gradient must be nonzero too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from stepwarden.agent.guarded import guarded
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import gradient_accumulated_twice
from stepwarden.probes.gradient_accumulated_twice import Accumulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.optim import Optimizer

LOOKED_AT = 6  # parameters of each optimizer
ASKED = 3  # of these, as many are asked whether their gradient is nonzero


class Followed:
    """
    One parameter and its gradient: which tensor it was, and in which version.

    A hook counts additions, and is there only while something is odd.
    """

    __slots__ = ("additions", "carried", "doubled", "gradient", "hook", "nonzero", "parameter", "version")

    def __init__(self, parameter: Tensor) -> None:
        """Begin before its first gradient."""
        self.parameter = TensorWeakRef(parameter)
        self.gradient: TensorWeakRef | None = None
        self.version = -1
        self.carried = self.doubled = False
        self.additions = 0
        self.nonzero: Tensor | None = None
        self.hook: Any = None

    def now(self) -> Tensor | None:
        """Return the gradient as it is now."""
        parameter = self.parameter()
        return None if parameter is None else parameter.grad

    def note(self, gradient: Tensor | None) -> None:
        """Note a gradient."""
        self.gradient = None if gradient is None else TensorWeakRef(gradient)
        self.version = -1 if gradient is None else gradient._version  # noqa: SLF001 - torch has no public name

    def same(self, gradient: Tensor | None, additions: int = 0) -> bool:
        """Whether a gradient is the one that was noted, with so many changes since."""
        return (
            gradient is not None
            and self.gradient is not None
            and gradient._version == self.version + additions  # noqa: SLF001 - as above
            and self.gradient() is gradient
        )

    def stepped(self) -> None:
        """Begin anew: an update has used the gradient."""
        self.clear()
        gradient = self.now()
        self.note(gradient)
        self.carried = gradient is not None

    def clear(self) -> None:
        """Forget what was: somebody else changed the gradient, or the step is over."""
        self.gradient, self.nonzero, self.additions = None, None, 0
        self.carried = self.doubled = False
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def suspect(self, gradient: Tensor, added: Callable[[Followed], None], *, ask: bool) -> None:
        """Follow what a backward pass adds to a gradient that is odd already."""
        if ask:
            with torch.no_grad():
                nonzero = gradient.detach().any()
                self.nonzero = nonzero if self.nonzero is None else self.nonzero & nonzero
        parameter = self.parameter()
        if self.hook is None and parameter is not None:
            self.hook = parameter.register_post_accumulate_grad_hook(lambda _parameter: added(self))

    def added(self) -> None:
        """Stand behind an addition: the gradient is the same and changed once, or it was cleared before."""
        gradient = self.now()
        if self.same(gradient, 1):
            self.additions += 1
            self.note(gradient)
        else:
            self.carried = self.doubled = False
            self.gradient = None


class AccumulationWatch(Watch):
    """Follows a few gradients of each optimizer."""

    kinds = (gradient_accumulated_twice.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first optimizer is made."""
        super().__init__(host)
        self.followed: WeakKeyDictionary[Optimizer, list[Followed]] = WeakKeyDictionary()
        self.losses: list[TensorWeakRef] = []
        self.added = guarded(host, self.kinds, Followed.added)

    def install(self) -> Iterable[Callable[[], object]]:
        """Return what takes the hooks off."""
        return (self.remove,)

    def remove(self) -> None:
        """Take all hooks off."""
        for followed in self.followed.values():
            for each in followed:
                each.clear()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Choose some parameters."""
        self.follow(optimizer, trained(optimizer))

    def follow(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> None:
        """Follow some of an optimizer's parameters, evenly spread, the smallest first."""
        able = [each for each in parameters if each.requires_grad and each.is_leaf and not each.is_sparse]
        chosen = sorted(able[:: max(1, -(-len(able) // LOOKED_AT))], key=Tensor.numel)
        self.followed[optimizer] = [Followed(parameter) for parameter in chosen]

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Look whether what the last update used is still there, and whether this loss was here before."""
        again = self.again(tensors)
        for followed in self.followed.values():
            asked = 0
            for each in followed:
                if each.gradient is None and not again:
                    continue
                gradient = each.now()
                if each.gradient is not None and not each.same(gradient):
                    each.clear()
                if again and gradient is not None and not each.carried:
                    each.doubled = True
                    each.note(gradient)
                if gradient is not None and (each.carried or each.doubled):
                    each.suspect(gradient, self.added, ask=asked < ASKED)
                    asked += 1

    def again(self, tensors: Sequence[Tensor]) -> bool:
        """Note the loss of a backward pass, and say whether one of this step began at it already."""
        if len(tensors) != 1 or not isinstance(tensors[0], Tensor) or tensors[0].numel() != 1:
            return False
        if any(known() is tensors[0] for known in self.losses):
            return True
        self.losses = [*self.losses[-LOOKED_AT:], TensorWeakRef(tensors[0])]
        return False

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Say how many were carried over or counted twice."""
        followed = self.followed.get(moment.optimizer, ())
        if not followed:
            return ()
        bad = [each for each in followed if each.additions and (each.carried or each.doubled)]
        if not any(bool(each.nonzero) for each in bad if each.nonzero is not None):
            return (Accumulation(of=len(followed)),)
        called = moment.names()
        names = tuple(name for each in bad if (name := called.get(id(each.parameter()))) is not None)
        carried, doubled = sum(each.carried for each in bad), sum(each.doubled for each in bad)
        return (Accumulation(of=len(followed), carried=carried, doubled=doubled, names=names),)

    def stepped(self, moment: Moment) -> Iterable[object]:
        """Note the gradients that the update has used."""
        self.losses.clear()
        followed = self.followed.get(moment.optimizer, [])
        if moment.due and moment.reading.parameters and all(each.now() is None for each in followed):
            for each in followed:
                each.clear()
            self.follow(moment.optimizer, moment.reading.parameters)
            followed = self.followed[moment.optimizer]
        for each in followed:
            each.stepped()
        return ()
