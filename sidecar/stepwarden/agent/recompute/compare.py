"""
Two runs of a checkpointed part, compared: which operators gave other values the second time.

The comparison is made where the values lie; what is left of it, a few numbers an operator, is
sent to the host without waiting.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.agent.recompute.trace import norm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepwarden.agent.recompute.trace import Draw, Entry, Trace

SHARE = 0.005  # of the values that must differ: rounding by atomics flips a single one at times
STILL = 1e-6  # of a buffer's size: less is no change
ADDITIVE = 2e-4  # how far two equal additions differ by rounding


@dataclass(frozen=True, slots=True)
class Pair:
    """One thing of both runs."""

    first: Entry
    again: Entry

    @property
    def reshaped(self) -> bool:
        """Whether shape or type are others."""
        return self.first.shape != self.again.shape


@dataclass(slots=True, eq=False)
class Compared:
    """
    A comparison whose numbers are on their way to the host.

    `numbers` has a row for each pair: for values the share that differs and by how much (in root
    mean squares of the first run); for buffers how far each run moved them, and how unlike. `draw` is
    an operator that drew from another state of the generator, where what it gave is unknown.
    """

    values: list[Pair]
    buffers: list[Pair]
    numbers: Tensor | None
    ready: Any = None
    draw: Draw | None = None

    @property
    def arrived(self) -> bool:
        """Whether reading the numbers waits for nothing."""
        return self.ready is None or bool(self.ready.query())


def aligned(first: Sequence[Entry], again: Sequence[Entry]) -> Iterator[Pair]:
    """
    Pair what two runs have in common, in order.

    The second run may stop early. Where they took different ways (a branch on whether gradients
    are enabled), what stands on the same line is paired.
    """
    count = min(len(first), len(again))
    before, after = [entry.key for entry in first], [entry.key for entry in again]
    if before[:count] == after[:count]:
        yield from map(Pair, first[:count], again[:count])
        return
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            yield Pair(first[block.a + offset], again[block.b + offset])


@torch.no_grad()
def compare(first: Trace, again: Trace, full: float, half: float) -> Compared:
    """Compare two runs, with a relative tolerance for full and one for half precision. Waits for nothing."""
    pairs = list(aligned(first.entries, again.entries))
    values = [pair for pair in pairs if pair.again.before is None]
    buffers = [pair for pair in pairs if pair.again.before is not None]
    draw = drawn_otherwise(first, again)
    if not pairs or first.rows.matrices[0].device != again.rows.matrices[0].device:
        return Compared([], [], None, draw=draw)
    one = first.rows.matrix([pair.first.row for pair in values + buffers])
    two = again.rows.matrix([pair.again.row for pair in values + buffers])
    count = len(values)
    tolerance = torch.tensor([half if pair.again.half else full for pair in values])
    found = [differing(one[:count], two[:count], sent(tolerance, one.device))]
    if buffers:
        old = first.rows.matrix([pair.first.before or 0 for pair in buffers])
        new = again.rows.matrix([pair.again.before or 0 for pair in buffers])
        found.append(moved(old, one[count:], new, two[count:]))
    return Compared(values, buffers, *to_host(torch.cat(found)), draw)


def drawn_otherwise(first: Trace, again: Trace) -> Draw | None:
    """Return the operator at which the recomputation was stopped, if it drew from another state."""
    for one, two in zip(first.draws, again.draws, strict=False):
        same = (one.op, one.place) == (two.op, two.place)
        if two.stopped and same and not torch.equal(one.state, two.state):
            return two
    return None


def differing(one: Tensor, two: Tensor, tolerance: Tensor) -> Tensor:
    """Return the share of each row's values that differ, and by how much. (rows, 256) to (rows, 3)."""
    filled = ((one != 0) | (two != 0)).sum(1).clamp(min=1)
    a, b = (matrix.nan_to_num(nan=1e30, posinf=3e30, neginf=-3e30) for matrix in (one, two))
    size = (a.double().square().sum(1) / filled).sqrt().unsqueeze(1)
    apart = (a.double() - b.double()).abs()
    bad = apart > tolerance.double().unsqueeze(1) * (torch.maximum(a.abs(), b.abs()) + size)
    worst = apart.amax(1) / size.squeeze(1).clamp(min=1e-30)
    return torch.stack([bad.sum(1) / filled, worst, torch.zeros_like(worst)], 1)


def moved(old: Tensor, one: Tensor, new: Tensor, two: Tensor) -> Tensor:
    """Return how far each of both runs moved its buffers, relative to their size, and how unlike that is."""
    size = old.double().abs().amax(1).clamp(min=1e-12)
    first, again = (one.double() - old.double()), (two.double() - new.double())
    unlike = (first - again).abs().amax(1) / first.abs().amax(1).clamp(min=1e-30)
    return torch.stack([first.abs().amax(1) / size, again.abs().amax(1) / size, unlike], 1)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Return values on a device, without waiting for it."""
    return values if device.type == "cpu" else values.pin_memory().to(device, non_blocking=True)


def to_host(values: Tensor) -> tuple[Tensor, Any]:
    """Begin a copy to the host; return it, and the event after which it is there."""
    if values.device.type == "cpu":
        return values, None
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    ready = getattr(torch, values.device.type).Event()
    ready.record()
    return host, ready


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs: `share` of the values, by `worst` of their size; `buffer` is updated once more."""

    pair: Pair
    share: float
    worst: float
    buffer: bool = False


def differences(compared: Compared) -> tuple[list[Difference], list[Difference]]:
    """Return what differs in the numbers, in order: values, and buffers that were updated twice."""
    if compared.numbers is None:
        return [], []
    numbers = compared.numbers.tolist()
    values = [
        Difference(pair, *((1.0, math.inf) if pair.reshaped else (share, worst)))
        for pair, (share, worst, _) in zip(compared.values, numbers, strict=False)
        if pair.reshaped or (share > SHARE and pair.first.strides == pair.again.strides)
    ]
    matters = any(each.pair.again.used for each in values)
    twice = [
        Difference(pair, 1.0, again, buffer=True)
        for pair, (first, again, unlike) in zip(
            compared.buffers, numbers[len(compared.values) :], strict=True
        )
        if min(first, again) > STILL and not handled(pair) and repeated(pair.again, unlike)
    ]
    return (values if matters else []), twice


def repeated(entry: Entry, unlike: float) -> bool:
    """Whether a second update spoils a buffer: it is an average, and no counter that adds the same twice."""
    return norm(entry.op) or unlike > ADDITIVE


def handled(pair: Pair) -> bool:
    """
    Whether two updates are as good as one.

    They are by a momentum of 1 - sqrt(1 - m) for some m that a person would write, and in a
    cumulative average (1/n and then 1/(n + 1)), to which every batch counts twice.
    """
    first, again = pair.first.momentum, pair.again.momentum
    if first is None or again is None or not 0 < again < 1:
        return False
    meant = 1 - (1 - again) ** 2
    made_for_it = math.isclose(meant, float(f"{meant:.2g}"), rel_tol=1e-6) and float(f"{again:.3g}") != again
    return made_for_it or math.isclose(again, first / (1 + first), rel_tol=1e-9)
