"""
Where a NaN or an Inf was born: from what a replay recorded to the one operator to blame.

An operator's inputs and outputs are given by one number each, the largest magnitude in it: NaN where a
value is NaN, inf where one is infinite, -inf where all the infinite ones are negative. Masks are made of
those, so a -inf that a mask put there is no fault, and what made a NaN of it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stepwarden.probes.trace import Trace, Value

Source = Literal["op", "argument", "parameter", "buffer", "constant"]

MASKING = frozenset(
    {
        "masked_fill", "where", "full", "full_like", "new_full", "fill", "tensor", "as_tensor", "triu",
        "tril", "masked_scatter", "setitem", "index_fill", "scalar_tensor", "from_numpy",
    }
)  # fmt: skip
"""Operators that put -inf where it is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eaten:
    """
    One input of an operator: its largest magnitude, and where it came from.

    `op` is the index of the operator that made it; where none did, `source` says what it is and
    `name` what it is called.
    """

    largest: float
    op: int | None = None
    source: Source = "constant"
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a recorded forward pass; `largest` is that of its outputs (0.0 where it has none)."""

    name: str
    largest: float
    inputs: tuple[Eaten, ...] = ()
    module: str | None = None
    file: str | None = None
    line: int | None = None
    label: str | None = None


def steps(trace: Trace, arguments: Mapping[int, str], parameters: Collection[str]) -> list[Step]:
    """
    Put a recording as steps.

    `arguments` names the values that the root was called with, `parameters` says which of the named
    values are parameters: the others are buffers.
    """
    makers = {value: op.index for op in trace.ops for value in op.outputs}

    def eaten(value: Value) -> Eaten:
        source: Source = "constant"
        name = value.leaf
        if name is not None:
            source = "parameter" if name in parameters else "buffer"
        elif value.id in arguments:
            source, name = "argument", arguments[value.id]
        return Eaten(largest=magnitude(value), op=makers.get(value.id), source=source, name=name)

    return [
        Step(
            name=op.name,
            largest=worst([magnitude(trace.values[value]) for value in op.outputs]),
            inputs=tuple(eaten(trace.values[value]) for value in op.inputs),
            module=op.module,
            file=op.file,
            line=op.line,
            label=op.label,
        )
        for op in trace.ops
    ]


def magnitude(value: Value) -> float:
    """Return the one number that tells most of a value."""
    if value.nan:
        return math.nan
    if value.inf:
        return -math.inf if value.neg_inf_only else math.inf
    return value.largest or 0.0


def worst(sizes: Sequence[float]) -> float:
    """Return the magnitude that tells most of several: NaN before Inf before the largest."""
    if any(map(math.isnan, sizes)):
        return math.nan
    return max(sizes, key=lambda size: (abs(size), size), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """
    One node of a recorded backward pass.

    `received` are the largest magnitudes of the gradients that came in, `sent` those that it made, each
    with the index of the node that it goes to (None: nobody took it). `op` is the forward operator,
    `smallest` the smallest magnitude in what it had saved, where it was looked at.
    """

    name: str
    received: tuple[float, ...]
    sent: tuple[tuple[float, int | None], ...]
    op: int | None = None
    smallest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """
    What is to blame.

    `source` "op": the operator `op` (an index), in the `backward` pass or the forward one; else something
    that was bad before the model began, called `name`, and `op` is the first operator that it met.
    `largest_in` (of what was finite), `largest_out` and `smallest` (of what was saved for the backward
    pass) are the magnitudes around it.
    """

    source: Source
    op: int | None = None
    backward: bool = False
    node: str | None = None
    name: str | None = None
    largest_in: float | None = None
    largest_out: float | None = None
    smallest: float | None = None


def finite(numbers: Sequence[float]) -> bool:
    """Whether all are finite."""
    return all(map(math.isfinite, numbers))


def of_forward(steps: Sequence[Step], start: Eaten) -> Birth | None:
    """
    Go back from a bad value to where it was born; None where it is a mask's, or not bad.

    A NaN is followed to the operator that made it of none. If that ate an Inf, the Inf is followed
    too, unless a mask put it there.
    """
    at, made_nan = start, None
    for _ in range(len(steps) + 1):
        if math.isfinite(at.largest):
            return None
        if at.op is None or not 0 <= at.op < len(steps):
            break
        step = steps[at.op]
        following = next_bad(step, at.largest)
        if following is None:
            deliberate = at.largest == -math.inf and step.name in MASKING
            return made_nan if deliberate else born(steps, at.op, at.largest)
        if math.isnan(at.largest) and not math.isnan(following.largest):
            made_nan = born(steps, at.op, at.largest)
        at = following
    else:  # a record that turns in a circle
        return made_nan
    if at.largest == -math.inf and at.source != "parameter" and (made_nan or at.source != "argument"):
        return made_nan
    return Birth(source=at.source, op=first_eater(steps, at), name=at.name, largest_in=at.largest)


def next_bad(step: Step, bad: float) -> Eaten | None:
    """Return the input that a bad output is owed to: a NaN before an Inf; None where all are finite."""
    if math.isnan(bad):
        for eaten in step.inputs:
            if math.isnan(eaten.largest):
                return eaten
    infinite = [eaten for eaten in step.inputs if math.isinf(eaten.largest)]
    positive = [eaten for eaten in infinite if eaten.largest > 0]
    return next(iter(positive or infinite), None)


def first_eater(steps: Sequence[Step], bad: Eaten) -> int | None:
    """Return the first operator that met a bad value from outside."""
    for index, step in enumerate(steps):
        for eaten in step.inputs:
            same = eaten.op is None and (eaten.source, eaten.name) == (bad.source, bad.name)
            if same and not math.isfinite(eaten.largest):
                return index
    return None


def born(steps: Sequence[Step], op: int, made: float) -> Birth:
    """Blame an operator of the forward pass."""
    eaten = [item.largest for item in steps[op].inputs if math.isfinite(item.largest)]
    return Birth(source="op", op=op, largest_in=worst(eaten) if eaten else None, largest_out=made)


def all_born(steps: Sequence[Step]) -> list[Birth]:
    """Return all operators that made a bad value of finite ones, wherever that went; no masks."""
    return [
        born(steps, index, step.largest)
        for index, step in enumerate(steps)
        if not math.isfinite(step.largest)
        and step.name not in MASKING
        and finite([eaten.largest for eaten in step.inputs])
    ]


def of_backward(nodes: Sequence[Node], bad: Sequence[int]) -> int | None:
    """
    Return the node that made the gradients of some parameters bad, though what it received was finite.

    `nodes` are in the order in which they ran, `bad` the indices of those whose gradient is bad: only what
    flowed on to them counts, a NaN that was masked away later does not. None where it came from outside.
    """
    senders: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for gradient, target in node.sent:
            if target is not None and not math.isfinite(gradient):
                senders.setdefault(target, []).append(index)
    seen: set[int] = set()
    waiting, culprits = list(bad), set()
    while waiting:
        at = waiting.pop()
        for sender in senders.get(at, ()):
            if sender in seen:
                continue
            seen.add(sender)
            if finite(nodes[sender].received):
                culprits.add(sender)
            else:
                waiting.append(sender)
    return min(culprits, default=None)


def of_step(
    steps: Sequence[Step], nodes: Sequence[Node], bad: Sequence[int], outputs: Sequence[Eaten]
) -> Birth | None:
    """
    Return what is to blame for bad gradients.

    `outputs` are the results of the forward pass that a gradient came back to. A backward operator that
    ran on bad values of the forward pass is no culprit: those are followed to their birth.
    """
    culprit = of_backward(nodes, bad)
    if culprit is None:
        return first_of(steps, outputs)
    node = nodes[culprit]
    if node.op is not None and 0 <= node.op < len(steps):
        step = steps[node.op]
        around = (Eaten(largest=step.largest, op=node.op), *step.inputs)
        if (birth := first_of(steps, around)) is not None:
            return birth
    received = worst(node.received)
    return Birth(
        source="op",
        op=node.op,
        backward=True,
        node=node.name,
        largest_in=received,
        largest_out=worst([gradient for gradient, _ in node.sent]),
        smallest=node.smallest,
    )


def first_of(steps: Sequence[Step], starts: Sequence[Eaten]) -> Birth | None:
    """Return the birth of the first bad value that has one: NaN before Inf."""
    ordered = sorted(starts, key=lambda eaten: not math.isnan(eaten.largest))
    return next((birth for eaten in ordered if (birth := of_forward(steps, eaten)) is not None), None)
