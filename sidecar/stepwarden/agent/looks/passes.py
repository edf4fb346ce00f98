"""
The backward passes whose gradients an optimizer still holds, and by which scaler they were multiplied.

A pass is behind for an optimizer once it was unscaled, applied or cleared. All of it is counted on the host.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from stepwarden.agent.looks.parameters import trained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from stepwarden.agent.looks.scales import Mark

KEPT = 64  # passes that are remembered; more micro-batches than that are seen by their last ones
NODES = 20_000  # of a graph that are looked at


@dataclass(slots=True)
class Pass:
    """
    One backward pass.

    `mark` is None where it was not scaled. `weighted`: it started from gradients that were given, whose
    factor nobody knows. `place` is the call of backward.
    """

    number: int
    mark: Mark | None
    loss: weakref.ref[Tensor]
    weighted: bool
    place: tuple[str, int] | None


class Passes:
    """The last passes, and up to which one each optimizer is done with them."""

    def __init__(self, living: Callable[[], list[Optimizer]]) -> None:
        """Begin without any."""
        self.living = living
        self.number = 0
        self.last: deque[Pass] = deque(maxlen=KEPT)
        self.behind: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self.known: WeakKeyDictionary[Optimizer, tuple[int, frozenset[int]]] = WeakKeyDictionary()

    def began(
        self, loss: Tensor, mark: Mark | None, place: tuple[str, int] | None, *, weighted: bool
    ) -> None:
        """Note a pass."""
        self.number += 1
        root = mark.loss if mark is not None else weakref.ref(loss)
        self.last.append(Pass(self.number, mark, root, weighted, place))

    def fresh(self, optimizer: Optimizer) -> list[Pass]:
        """Return the passes that an optimizer's gradients may hold."""
        behind = self.behind.get(optimizer, 0)
        return [one for one in self.last if one.number > behind]

    def done(self, optimizer: Optimizer) -> None:
        """Note that an optimizer's gradients hold nothing fresh any more, nor do those of its wrappers."""
        for one in self.related(optimizer):
            self.behind[one] = self.number

    def cleared(self, parameters: Iterable[Tensor]) -> None:
        """Note that the gradients of a module's parameters were cleared."""
        first = next(iter(parameters), None)
        for one in self.living():
            if first is not None and id(first) in self.ids(one):
                self.behind[one] = self.number

    def related(self, optimizer: Optimizer) -> list[Optimizer]:
        """Return an optimizer, and those that own some of its parameters (Lookahead, SAM)."""
        living = self.living()
        if len(living) < 2 and (not living or living[0] is optimizer):  # noqa: PLR2004 - no other one
            return [optimizer]
        own = self.ids(optimizer)
        others = (one for one in living if one is not optimizer and not own.isdisjoint(self.ids(one)))
        return [optimizer, *others]

    def owners(self, parameters: Sequence[Tensor]) -> list[Optimizer]:
        """Return the optimizers that own some of the parameters."""
        return [one for one in self.living() if any(id(each) in self.ids(one) for each in parameters)]

    def ids(self, optimizer: Optimizer) -> frozenset[int]:
        """Return the ids of an optimizer's parameters, gathered again when their number changes."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self.known.get(optimizer)
        if known is None or known[0] != count:
            ids = frozenset(map(id, trained(optimizer)))
            known = self.known[optimizer] = (count, ids)
        return known[1]

    def sure(self, one: Pass, optimizer: Optimizer) -> bool:
        """Whether a pass surely gave gradients to an optimizer: the only one, or in its graph."""
        return len(self.related(optimizer)) >= len(self.living()) or self.reaches(one, optimizer)

    def reaches(self, one: Pass, optimizer: Optimizer) -> bool:
        """Whether the graph of a pass ends in a parameter of the optimizer; False where the graph is gone."""
        return not self.ids(optimizer).isdisjoint(leaves(one))


def leaves(one: Pass) -> frozenset[int]:
    """Return the ids of the leaves that the graph of a pass ends in; none where the graph is gone."""
    loss = one.loss()
    waiting: list[Any] = [loss.grad_fn] if loss is not None else []
    found: set[int] = set()
    seen: set[Any] = set()
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.add(id(leaf))
        waiting.extend(before for before, _ in node.next_functions)
    return frozenset(found)
