"""What is said of ranks that hang: findings that name who waits, who is missing, and where each stands."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from stepwarden.probes.naming import of_ranks
from stepwarden.probes.ranks.pace import Pace
from stepwarden.probes.ranks.seen import PAUSES, Seen
from stepwarden.wire import Finding, Verdict

QUIET = 2.0  # seconds without a word; one a second is usual
SHOWN = 16  # ranks whose stacks and places are in the evidence: those to blame first
NAME = 100  # characters of a name that torch has recorded
STACK = 4000  # characters of one stack, its end


def missing(late: Sequence[Seen], waiting: Sequence[Seen], seen: Sequence[Seen], limits: Pace) -> Verdict:
    """Say which ranks do not come."""
    waited = max(each.waits or each.spins for each in waiting)
    first = late[0]
    message = (
        f"{of_ranks(ranks(late))} {verb(late, 'keep')} {of_ranks(ranks(waiting))} waiting for {waited:.1f} s "
        f"{where(waiting[0])}, where {limits.tight:.2g} s is late at this pace: {state(first, late)}"
    )
    return bad("Missing", message, late, waiting, seen, limits)


def ended(gone: Sequence[Seen], waiting: Sequence[Seen], seen: Sequence[Seen], limits: Pace) -> Verdict:
    """Say that ranks wait for some that have ended."""
    waited = min(each.waits or each.spins for each in waiting)
    message = (
        f"{of_ranks(ranks(waiting))} {verb(waiting, 'wait')} for {waited:.1f} s, {where(waiting[0])}, and "
        f"{have_ended(ranks(gone))}"
    )
    return bad("Ended", message, gone, waiting, seen, limits)


def have_ended(gone: Sequence[int], when: str = "") -> str:
    """Say that ranks have ended while others go on, and what to do about it."""
    subject = f"{of_ranks(gone)} {'has' if len(gone) == 1 else 'have'}"
    how = "uneven data: DistributedSampler, or the wrapper's join()"
    return f"{subject} ended{when}: let every rank take the same number of steps ({how})"


def everyone(waiting: Sequence[Seen], seen: Sequence[Seen], limits: Pace, *, apart: bool) -> Verdict:
    """Say that all ranks wait."""
    waited = min(each.waits or each.spins for each in waiting)
    places = "; ".join(f"rank {each.rank} {where(each)}" for each in waiting[:4])
    more = f"; and {len(waiting) - 4} more" if len(waiting) > 4 else ""  # noqa: PLR2004 - as many as named
    if apart:
        why = (
            "in collectives that are not the same one, so none can end: every rank has to call the same ones "
            "in the same order, with the same shapes, also behind an exception that only one rank catches"
        )
    else:
        why = "in the same collective, and it does not end: look at the network between their machines"
    message = f"all {len(waiting)} ranks wait for {waited:.1f} s, {why} ({places}{more})"
    return bad("Apart" if apart else "AllWait", message, waiting, waiting, seen, limits, blamed=False)


def stopped(live: Sequence[Seen], seen: Sequence[Seen], limits: Pace, rest: float) -> Verdict:
    """Say that nothing moves although nobody waits for another rank."""
    alone = len(live) == 1
    subject = f"rank {live[0].rank} has not" if alone else "no rank has"
    message = f"{subject} got any further for {rest:.0f} s: {state(live[0], live)}"
    return bad("Stopped", message, live, [], seen, limits, blamed=alone)


def state(rank: Seen, among: Sequence[Seen]) -> str:
    """Say what a rank is at that does not come, and what to do about it."""
    subject, at = "it" if len(among) == 1 else f"rank {rank.rank}", f"in the {rank.pulse.part}{place(rank)}"
    if rank.cut:
        gone = f"neither {subject} nor its pod's sidecar has been heard from for {rank.silent:.1f} s"
        return f"{gone}, so look at its machine and at the network to it"
    if rank.silent > QUIET:
        reason = "stopped (SIGSTOP, a debugger), frozen, or one call holds the interpreter"
        return f"{subject} has said nothing for {rank.silent:.1f} s, last {at}: its process is {reason}"
    return f"{subject} {doing(rank, at)}"


def doing(rank: Seen, at: str) -> str:
    """Say what a rank is at that still speaks."""
    marks = set(rank.pulse.marks)
    if rank.locked:
        return f"waits {at} for a lock, an event or a thread that does not come (see its stack)"
    if "loading" in marks:
        return f"waits {at} for data, so look at the DataLoader's workers and at where they read"
    if PAUSES & marks:
        return f"has been {', '.join(sorted(PAUSES & marks))} for long, {at}"
    if rank.still:
        verb = "sleeps" if "sleeping" in marks else "stands still"
        return f"{verb} {at}, for {rank.still:.1f} s (see its stack)"
    return f"works {at} without coming to an end (see its stack)"


def where(rank: Seen) -> str:
    """Say in which collective a rank waits: `in all_reduce (train.py:30, its collective number 41)`."""
    pulse = rank.pulse
    if not pulse.collective:
        return f"in the {pulse.part}{place(rank)}"
    here = f"{spot(rank)}{count(rank)}".removeprefix(", ")
    return f"in {pulse.collective} ({here})" if here else f"in {pulse.collective}"


def count(rank: Seen) -> str:
    """
    Say which collective it is: where torch has recorded it, `, number 12 of default_pg with float[4, 3]`.

    A rank's own count has only those that Python begins, in all groups.
    """
    if rank.recorded is None:
        return f", its collective number {rank.pulse.sequence}" if rank.pulse.sequence > 0 else ""
    (group, number), (_, tensors) = rank.recorded, rank.brings
    return f", number {number} of {group[:NAME]}" + (f" with {tensors[:NAME]}" if tensors else "")


def place(rank: Seen) -> str:
    """Say a user's line as ` (train.py:30)`, nothing where it isn't known."""
    return f" ({spot(rank)})" if rank.pulse.file else ""


def spot(rank: Seen) -> str:
    """Return a user's line as `train.py:30`."""
    return f"{PurePath(rank.pulse.file).name}:{rank.pulse.line}" if rank.pulse.file else ""


def verb(of: Sequence[Seen], word: str) -> str:
    """Put a verb for one rank, or for several."""
    return f"{word}s" if len(of) == 1 else word


def ranks(of: Sequence[Seen]) -> list[int]:
    """Return their numbers."""
    return [each.rank for each in of]


def bad(  # noqa: PLR0913, PLR0917 - who is to blame, who waits and who else there is
    reason: str,
    message: str,
    guilty: Sequence[Seen],
    waiting: Sequence[Seen],
    seen: Sequence[Seen],
    limits: Pace,
    *,
    blamed: bool = True,
) -> Verdict:
    """Make the finding."""
    named = set(ranks(guilty))
    order = [*guilty, *(each for each in seen if each.rank not in named)][:SHOWN]
    first = guilty[0].pulse
    finding = Finding(
        kind="RankHung",
        severity="critical",
        step=min(each.pulse.step for each in guilty),
        rank=first.rank if blamed else None,
        ranks=tuple(ranks(guilty)),
        file=first.file,
        line=first.line,
        message=message,
        evidence={
            "why": reason,
            "limit_seconds": limits.tight,
            "waiting": [told(each) for each in waiting[:SHOWN]],
            "missing": [told(each) for each in guilty[:SHOWN]] if blamed else [],
            "stacks": {str(each.rank): each.pulse.stack[-STACK:] for each in order if each.pulse.stack},
        },
    )
    return Verdict("bad", reason, message, finding)


def told(rank: Seen) -> dict[str, Any]:
    """Put what a rank is at as evidence."""
    pulse = rank.pulse
    body = {
        "rank": rank.rank,
        "step": pulse.step,
        "phase": pulse.phase,
        "collective": pulse.collective,
        "sequence": pulse.sequence,
        "recorded": dict(pulse.recorded) or None,
        "seconds": round(rank.waits or rank.still, 2),
        "silent": round(rank.silent, 2) if rank.silent > QUIET else None,
        "marks": list(pulse.marks),
        "file": pulse.file,
        "line": pulse.line,
        "node": pulse.node,
    }
    return {key: value for key, value in body.items() if value not in (None, "", [])}
