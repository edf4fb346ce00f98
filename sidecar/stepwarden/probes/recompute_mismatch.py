"""
RecomputeMismatch: an activation recomputed for the backward pass differs from that of the forward pass.

The gradients then belong to another forward pass than the loss does (allenai/OLMo-core#828), or
running statistics are updated twice a step (pytorch/pytorch#62471).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from stepwarden.probes.finding import finding
from stepwarden.wire import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwarden.probes.observation import Observation

KIND = "RecomputeMismatch"
DEFAULTS: Mapping[str, float] = {"every": 100, "tolerance": 1e-3, "half_tolerance": 2e-2}
OTHERS = 10  # differences beside the first one, in the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """
    The first operator of a checkpointed part that gave other values when it was recomputed.

    `file` and `line` are the call of checkpoint, `op_file` and `op_line` the operator's own. `share` of
    its values differ, the worst by `worst` times their root mean square (None: it drew other random
    numbers, and what it made of them is not known). `buffer`: it updated one
    twice. `unset_line` left memory unset that the operator read. `preserved`: checkpoint kept
    torch's random state.
    """

    module: str | None
    op: str
    file: str | None
    line: int | None
    op_file: str | None
    op_line: int | None
    share: float | None = None
    worst: float | None = None
    tolerance: float | None = None
    buffer: bool = False
    shapes: tuple[str, str] | None = None
    preserved: bool = True
    unset_line: int | None = None
    momentum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """How many checkpointed parts were compared with their recomputation, and what differed."""

    parts: int
    differing: tuple[Differing, ...] = ()


NEEDS = Recomputed


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether what was recomputed is what was computed."""
    del settings
    record = seen.record(Recomputed)
    if record is None:
        return Verdict("unknown", "NotCompared", "no checkpointed part was compared in this step")
    if not record.differing:
        return Verdict("ok", "Same", f"{record.parts} checkpointed parts were recomputed as they were")
    first, *others = sorted(record.differing, key=lambda each: each.buffer)
    message = sentence(first) + more(len(others))
    evidence = {**asdict(first), "parts": record.parts, "others": [asdict(each) for each in others[:OTHERS]]}
    found = replace(
        finding(seen, KIND, message, severity="warning", evidence=evidence),
        module=first.module,
        op=first.op,
        file=first.file,
        line=first.line,
    )
    return Verdict("bad", "TwiceUpdated" if first.buffer else "Differs", message, found)


def sentence(differing: Differing) -> str:
    """Say what differs, and the way out."""
    where = differing.module or "a checkpointed part"
    at = f" ({differing.op_file}:{differing.op_line})" if differing.op_file else ""
    if differing.buffer:
        return (
            f"{differing.op} of {where}{at} updates its running statistics in the forward pass, and again "
            f"when checkpoint recomputes it for backward: {way_out_of_twice(differing.momentum)}"
        )
    how = "draws other random numbers"
    if differing.shapes:
        how = f"has {differing.shapes[1]} and not {differing.shapes[0]}"
    elif differing.share is not None and differing.worst is not None:
        how = f"gives other values ({differing.share:.0%} of them, by {differing.worst:.2g} times their size)"
    return (
        f"{differing.op} of {where}{at} {how} when checkpoint recomputes it for backward, so that the "
        f"gradients belong to another forward pass than the loss: {way_out(differing)}"
    )


def way_out(differing: Differing) -> str:
    """Say what to do about other values."""
    if differing.unset_line is not None:
        return f"it reads memory that line {differing.unset_line} left unset: begin with torch.zeros there"
    if not differing.preserved:
        return "call checkpoint without preserve_rng_state=False"
    return (
        "what it depends on must not change before backward, and it may draw random numbers from torch "
        "only, whose state checkpoint keeps"
    )


def way_out_of_twice(momentum: float | None) -> str:
    """Say what to do about statistics that are updated twice."""
    way = "take it out of what is checkpointed"
    if momentum is None or not 0 < momentum < 1:
        return way
    half = 1 - math.sqrt(1 - momentum)
    return f"{way}, or make its momentum {half:.9g}, two updates of which are one of {momentum:g}"


def more(others: int) -> str:
    """Say how many more there are."""
    return f" (and {others} more)" if others else ""
