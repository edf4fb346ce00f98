"""
Passes over a shuffling DistributedSampler: its order depends on its epoch number, which the program must set.

What was only looked at, or evaluated on, may come again: a pass counts once updates were made during it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from torch.utils.data.distributed import DistributedSampler

from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import data_repeated
from stepwarden.probes.data_repeated import Epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@dataclass(slots=True, eq=False)
class Passes:
    """A sampler's passes: the orders that were trained on; the one under way, from which step to which."""

    trained: set[tuple[int, int]] = field(default_factory=set)
    order: tuple[int, int] | None = None
    began: int = 0
    last: int = 0

    def begin(self, order: tuple[int, int], step: int) -> bool:
        """Begin a pass; return whether its order was trained on before."""
        if self.order is not None and self.last > self.began:
            self.trained.add(self.order)
        self.order, self.began, self.last = order, step, step
        return order in self.trained


class EpochWatch(Watch):
    """Follows the samplers of one process."""

    kinds: ClassVar[tuple[str, ...]] = (data_repeated.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first sampler."""
        super().__init__(host)
        self.passes: WeakKeyDictionary[DistributedSampler[Any], Passes] = WeakKeyDictionary()
        self.new: Epochs | None = None
        self.error: Exception | None = None

    def install(self) -> Iterable[Callable[[], object]]:
        """Wrap the sampler's iteration on its class; return what undoes it."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(sampler: DistributedSampler[Any]) -> Any:
                indices = original(sampler)
                return self.begun(sampler, indices) if sampler.shuffle else indices

            return watched

        return [replace_attribute(DistributedSampler, "__iter__", wrap)]

    def begun(self, sampler: DistributedSampler[Any], indices: Iterator[Any]) -> Iterator[Any]:
        """Note that a pass begins; return the indices, followed."""
        try:
            passes = self.passes.setdefault(sampler, Passes())
            repeated = passes.begin((int(sampler.seed), int(sampler.epoch)), self.host.step)
            file, line = caller(sys._getframe(1)) or (None, None)  # noqa: SLF001 - the cheap way to the caller's line
            if repeated or self.new is None:
                self.new = Epochs(epoch=int(sampler.epoch), repeated=repeated, file=file, line=line)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host; it is raised at the boundary
            self.error = error
            return indices
        return self.following(passes, indices)

    def following(self, passes: Passes, indices: Iterator[Any]) -> Iterator[Any]:
        """Hand the indices on, and note up to which step they are asked for."""
        for index in indices:
            passes.last = self.host.step
            yield index

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Hand on the passes that began in this step."""
        del moment
        if self.error is not None:
            raise self.error
        found, self.new = self.new, None
        return () if found is None else (found,)
