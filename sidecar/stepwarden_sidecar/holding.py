"""
From what a person or a policy wants to the ranks' orders: pure.

Ranks meet in collectives, so they must all stop at the same boundary: a rank that waits while
another one is inside a collective would leave that one stuck. The boundary is therefore put a
little ahead of all; if one ran past it all the same (its orders came late), it is put ahead again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepwarden.attempt import until
from stepwarden.wire import Instruction, Orders, State

REACH = 0.3  # seconds that orders may need to all ranks
PATIENCE = 1.0  # seconds after which a rank that reached the boundary and doesn't wait has run past it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank as far as holding goes: since when (any clock, in seconds) it is at that step in that state."""

    state: State
    step: int
    since: float
    steps_per_second: float | None = None


def decide(
    previous: Orders, wanted: Instruction, ranks: Iterable[Rank], now: float, *, anew: bool = False
) -> Orders:
    """
    Return the ranks' orders; what is acknowledged and `save` only ever grow. `anew`: a rank has begun again.

    The training is asked to save once all ranks wait at the same boundary: saving may need them all.
    """
    newest, ranks = wanted if until(wanted) >= until(previous) else previous, list(ranks)
    live = [rank for rank in ranks if rank.state in {"running", "held"}]
    together = bool(live) and all(rank.state == "held" for rank in live)
    return Orders(
        hold_at=boundary(previous.hold_at, ranks, now, anew=anew) if wanted.hold else None,
        save=max(previous.save, wanted.save) if together else previous.save,
        attempt=newest.attempt,
        acknowledged=newest.acknowledged,
        update=newest.update,
    )


def boundary(before: int | None, ranks: Sequence[Rank], now: float, *, anew: bool = False) -> int:
    """Return the step at whose boundary all ranks wait, given the one that they were told before."""
    live = [rank for rank in ranks if rank.state in {"running", "held"}]
    top = max((rank.step for rank in live), default=-1)
    waiting = [rank for rank in live if rank.state == "held"]
    if live and len(waiting) == len(live):
        return top if before is None else max(before, top)
    if before is not None and anew:  # it shall not run up to where its predecessor was; who is held, stays
        running = max((rank.step for rank in live if rank.state == "running"), default=top)
        return min(before, running + margin(live))
    if before is None or past(before, live, now):
        return top + margin(live)
    return before


def past(hold_at: int, live: Sequence[Rank], now: float) -> bool:
    """
    Tell whether a rank has run past the boundary.

    One that is at the boundary and runs may be about to wait; once it has been there for a
    while, beside others that wait, it went through and is stuck in the step after.
    """
    running = [rank for rank in live if rank.state == "running"]
    held = any(rank.state == "held" for rank in live)
    return any(
        rank.step > hold_at or (held and rank.step == hold_at and now >= rank.since + PATIENCE)
        for rank in running
    )


def margin(live: Sequence[Rank]) -> int:
    """Return how many steps ahead a boundary is safe: what the fastest does while orders travel, and one."""
    fastest = max((rank.steps_per_second or 0.0 for rank in live), default=0.0)
    return 1 + math.ceil(min(fastest, 1e4) * REACH)
