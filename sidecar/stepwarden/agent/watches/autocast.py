"""
Autocast's copies of weights: a region keeps them until it ends, so an update within it makes them stale.

Nothing is computed, as that would fill the same cache. The graph of a suspicious pass says it exactly: a
cast made before the update, used by an operator that ran behind it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.agent.looks.parameters import Parameters, trained
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import stale_cast
from stepwarden.probes.stale_cast import Casts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch.optim import Optimizer

    from stepwarden.agent.hooks.calls import Call

CAST = "ToCopyBackward"
NODES = 50_000  # of a graph that are looked at
LOOKS = 3  # graphs that are walked before it is known that a program is healthy
SELDOM = 100  # suspicious passes from then on until the next one is
NAMED = 6


@dataclass(frozen=True, slots=True)
class Update:
    """An update within a region: its step, how many regions had ended, and the number of the next node."""

    step: int
    region: int
    node: int


class AutocastWatch(Watch):
    """Notes updates within autocast regions, and looks at what the next forward pass is made of."""

    kinds: ClassVar[tuple[str, ...]] = (stale_cast.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin outside of any region. Raises where torch doesn't number its nodes."""
        super().__init__(host)
        self.next_node: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr")  # noqa: B009 - not exported
        self.regions = 0  # that have ended
        self.updates: WeakKeyDictionary[Optimizer, Update] = WeakKeyDictionary()
        self.place: tuple[str, int] | None = None
        self.suspicious = False
        self.seen = 0
        self.found: tuple[Update | None, list[int]] | None = None

    def install(self) -> Iterable[Callable[[], object]]:
        """
        Count the outermost regions that end: each clears the cache.

        A program's own clearing isn't counted: what it does is seen in the graph.
        """

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def leave(region: torch.autocast, *args: Any) -> Any:
                outcome = original(region, *args)
                if not torch.compiler.is_compiling() and not depth():
                    self.regions += 1
                return outcome

            return leave

        return [replace_attribute(torch.autocast, "__exit__", wrap)]

    def forward_began(self, call: Call) -> None:
        """See whether a pass begins in a region in which weights were updated."""
        if self.updates and not self.suspicious and self.same_region():
            self.suspicious, self.place = True, call.place

    def same_region(self) -> bool:
        """Whether the casts of an update's region are still there."""
        return any(update.region == self.regions for update in self.updates.values())

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Look at what a suspicious pass is made of: the first few, and then seldom."""
        if not self.updates or self.found is not None or not (self.suspicious or self.same_region()):
            return
        self.seen += 1
        if self.seen > LOOKS and self.seen % SELDOM:
            return
        if self.place is None:
            self.place = caller(sys._getframe())  # noqa: SLF001 - the cheap way to the caller's line
        roots = [one.grad_fn for one in tensors if isinstance(one, Tensor)]
        updated = {
            id(parameter): update
            for optimizer, update in self.updates.items()
            for parameter in trained(optimizer)
        }
        stale = stale_casts(roots, updated)
        self.found = (updated[stale[0]] if stale else None, stale)

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Say what was seen, and note whether this update is made within a region that keeps its casts."""
        seen = self.record()
        self.found, self.place, self.suspicious = None, None, False
        if depth() and torch.is_autocast_cache_enabled():
            self.updates[moment.optimizer] = Update(moment.step, self.regions, self.next_node())
        elif self.updates:
            self.updates.pop(moment.optimizer, None)
        return seen

    def record(self) -> list[Casts]:
        """Put what was seen as plain values."""
        if self.found is None:
            return []
        update, stale = self.found
        if update is None:
            return [Casts(stale=0, updated=0)]
        called = tuple(self.names(frozenset(stale)))[:NAMED]
        file, line = self.place or (None, None)
        return [Casts(stale=len(stale), updated=update.step, parameters=called, file=file, line=line)]

    def names(self, stale: frozenset[int]) -> Iterable[str]:
        """Yield the names of parameters, which another optimizer may own than the one that steps."""
        for optimizer in list(self.updates):
            found = Parameters(optimizer).names(optimizer)
            own = set(map(id, trained(optimizer)))
            yield from (name for one, name in found.items() if one in stale & own)


def depth() -> int:
    """Return how many autocast regions are open; torch tells it only when it counts."""
    found: int = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return found - 1


def stale_casts(roots: Iterable[Any], updated: Mapping[int, Update]) -> list[int]:
    """
    Return the ids of parameters whose cast is older than their update and whose user is not.

    Goes only through what was made behind the earliest update: an edge that leads further back than
    that leads to a stale cast, or to something that was kept on purpose.
    """
    earliest = min((update.node for update in updated.values()), default=0)
    waiting = [root for root in roots if root is not None]
    seen: set[Any] = set()
    stale: dict[int, None] = {}
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        number = node._sequence_nr()  # noqa: SLF001 - the order of nodes, which profilers show
        if number < earliest:
            continue
        for before, _ in node.next_functions:
            if before is None:
                continue
            weight = cast_of(before)
            update = updated.get(id(weight)) if weight is not None else None
            if update is not None and before._sequence_nr() < update.node <= number:  # noqa: SLF001 - as above
                stale[id(weight)] = None
            waiting.append(before)
    return list(stale)


def cast_of(node: Any) -> Tensor | None:
    """Return the leaf that a node casts, if it does that."""
    if not node.name().startswith(CAST):
        return None
    before = node.next_functions[0][0] if node.next_functions else None
    leaf: Tensor | None = getattr(before, "variable", None)
    return leaf
