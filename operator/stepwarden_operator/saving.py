"""
Asking the training for a checkpoint before its pods go: since when, until when, and who has answered. Pure.

The status remembers the wish, so that an operator that is killed asks no second time. The ranks are held
meanwhile, all at the same boundary.
"""

from dataclasses import dataclass
from typing import Any

from stepwarden.wire import RankReport
from stepwarden_operator.conditions import Condition
from stepwarden_operator.observe import Observed, seconds_of, timestamp

ALIVE = ("running", "held")
STUCK = frozenset({"RankFailed", "RankHung"})  # ranks that reach no boundary can't save


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A wish for a checkpoint: its number, since when, until when, and how many ranks have answered."""

    number: int
    since: float
    until: float
    saved: int
    total: int
    over: bool


def saving(observed: Observed, *, wanted: bool, now: float) -> Saving | None:
    """
    Return the wish that stands, new or known; None where nothing is to be saved.

    It begins only where ranks can answer: they have taken a step, and their hub is heard.
    """
    child, asked = observed.child, observed.job.checkpoint
    if not wanted or asked is None or child is None or child.suspend:
        return None
    ranks = living(observed)
    known = known_wish(observed)
    if known is None:
        if observed.report is None or not any(rank.step >= 0 for rank in ranks):
            return None
        known = observed.report.orders.save + 1, now
    number, since = known
    until = since + asked.grace
    saved = sum(rank.saved >= number for rank in ranks)
    heard = observed.report is not None
    over = now >= until or (heard and saved >= len(ranks))
    return Saving(number=number, since=since, until=until, saved=saved, total=len(ranks), over=over)


def living(observed: Observed) -> list[RankReport]:
    """Return the ranks that may still save."""
    return [rank for rank in observed.report.ranks if rank.state in ALIVE] if observed.report else []


def known_wish(observed: Observed) -> tuple[int, float] | None:
    """Return what the status remembers of a wish in this run."""
    known = observed.job.status.get("saving") or {}
    if not known or known.get("run", 0) != observed.job.run:
        return None
    return int(known["number"]), seconds_of(known["since"])


def to_status(wish: Saving | None, run: int) -> dict[str, Any] | None:
    """Write a wish, to be remembered; one that is over is forgotten once the pods go."""
    if wish is None:
        return None
    return {"number": wish.number, "since": timestamp(wish.since), "run": run}


def condition(wish: Saving) -> Condition:
    """Say what is waited for, and for how long at most."""
    told = f"{wish.saved} of {wish.total} ranks have saved"
    if wish.over:
        word = "Saved" if wish.saved >= wish.total else "GracePeriodOver"
        return Condition("Saving", status=False, reason=word, message=told)
    message = (
        f"the training is asked for a checkpoint before its pods go: {told}; until {timestamp(wish.until)}"
    )
    return Condition("Saving", status=True, reason="Requested", message=message)
