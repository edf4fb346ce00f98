"""
Frozen parameters that an update can reach, and base weights under adapters that should be frozen.

An update reaches what is frozen where the optimizer has it with a gradient that was left, or where it
shares memory with what is trained. Only these are compared: what a program moves by hand is its own matter.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from stepwarden.agent.looks import adapters
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.looks.sampling import Sample, suits
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import frozen_parameter_changed
from stepwarden.probes.frozen_parameter_changed import Bases, Changed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.optim import Optimizer

EARLY, EVERY = 8, 10  # looks at the same parameters in a row, and one of so many updates later


@dataclass(slots=True, eq=False)
class Reach:
    """
    What an optimizer can reach of what is frozen.

    `shared` has by id of a frozen parameter the trained one in its memory, `count` the number of
    frozen ones when that was looked at.
    """

    suspects: frozenset[int] = frozenset()
    looks: int = 0
    sample: Sample | None = None
    before: Tensor | None = None
    count: int = -1
    shared: dict[int, tuple[TensorWeakRef, TensorWeakRef]] = field(default_factory=dict)


class Freezing(Watch):
    """Compares what is frozen around an update that can reach it."""

    kinds = (frozen_parameter_changed.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first update."""
        super().__init__(host)
        self.reaches: WeakKeyDictionary[Optimizer, Reach] = WeakKeyDictionary()

    @torch.no_grad()
    def boundary(self, moment: Moment) -> Iterable[object]:
        """Take some elements of what the update can reach; look at adapters where it is time."""
        reach = self.reaches.setdefault(moment.optimizer, Reach())
        groups = moment.optimizer.param_groups
        frozen = [each for group in groups for each in group["params"] if not each.requires_grad]
        if moment.due or len(frozen) != reach.count:
            reach.count = len(frozen)
            reach.shared = sharing(moment, trained(moment.optimizer))
        left = [each for each in frozen if each.grad is not None]
        shared = [each for frozen, _ in reach.shared.values() if (each := frozen()) is not None]
        self.take(moment, reach, [*left, *shared])
        return self.bases(moment) if moment.due else ()

    @staticmethod
    def take(moment: Moment, reach: Reach, suspects: list[Tensor]) -> None:
        """Take some elements, where others are reached than before, and else every few steps."""
        reach.sample = reach.before = None
        if not suspects:
            reach.suspects = frozenset()
            return
        ids = frozenset(map(id, suspects))
        if ids != reach.suspects:
            reach.suspects, reach.looks = ids, 0
        reach.looks += 1
        if reach.looks <= EARLY or moment.count % EVERY == 0:
            reach.sample = Sample(suspects)
            reach.before = reach.sample.take()

    @torch.no_grad()
    def stepped(self, moment: Moment) -> Iterable[object]:
        """Compare."""
        reach = self.reaches.get(moment.optimizer)
        if reach is None or reach.sample is None or reach.before is None:
            return ()
        sample, before = reach.sample, reach.before
        after = sample.take()
        reach.sample = reach.before = None
        if after is None or after.shape != before.shape:
            return ()
        moved = sample.sums((after.double() - before.double()) ** 2)
        bad = [each for each, size in zip(sample.parameters, moved.tolist(), strict=True) if size > 0]
        if not bad:
            return (Changed(of=len(sample.parameters)),)
        return (described(moment, reach, sample, bad, relative(sample, before, moved)),)

    def bases(self, moment: Moment) -> Iterable[object]:
        """Look whether base weights under adapters are trained."""
        held = {
            id(each) for optimizer in (*self.host.living(), moment.optimizer) for each in trained(optimizer)
        }
        of, names = 0, []
        for root in moment.roots():
            for _, adapter, base in adapters.layers(root):
                if any(each.requires_grad for each in adapter):
                    of += 1
                    if all(each.grad is not None and id(each) in held for _, each in base):
                        names.append(base[0][0])
        return (Bases(of=of, trained=len(names), names=tuple(names)),) if of else ()


def sharing(moment: Moment, parameters: list[Tensor]) -> dict[int, tuple[TensorWeakRef, TensorWeakRef]]:
    """Find frozen parameters in the memory of those that an optimizer trains, which it also gives."""
    spans = sorted(
        ((each.data_ptr(), extent(each), each) for each in parameters if each.requires_grad and suits(each)),
        key=lambda span: span[0],
    )
    starts = [start for start, _, _ in spans]
    found = {}
    for root in moment.roots():
        for each in root.parameters():
            if each.requires_grad or not suits(each) or not spans:
                continue
            start = each.data_ptr()
            index = bisect.bisect_right(starts, start) - 1
            near = [span for span in spans[max(index, 0) : index + 2] if span[0] < start + extent(each)]
            partner = next((span[2] for span in near if start < span[0] + span[1]), None)
            if start and partner is not None:
                found[id(each)] = (TensorWeakRef(each), TensorWeakRef(partner))
    return found


def extent(tensor: Tensor) -> int:
    """Return the bytes that a tensor's elements take."""
    return tensor.numel() * tensor.element_size()


def relative(sample: Sample, before: Tensor, moved: Tensor) -> float:
    """Return the norm of what moved over that of what there was."""
    size = float(sample.sums(before.double() ** 2)[moved > 0].sum()) ** 0.5
    return float(moved.sum()) ** 0.5 / size if size else float("inf")


def described(moment: Moment, reach: Reach, sample: Sample, bad: list[Tensor], size: float) -> Changed:
    """Name what changed."""
    called = moment.names()
    named = [name for each in bad if (name := called.get(id(each))) is not None]
    pair = next((reach.shared[id(each)] for each in bad if id(each) in reach.shared), None)
    partner = pair[1]() if pair is not None else None
    return Changed(
        of=len(sample.parameters),
        changed=len(bad),
        size=size,
        shared=pair is not None,
        partner=called.get(id(partner)) if partner is not None else None,
        names=tuple(named),
    )
