"""
RankHung: ranks wait for one that does not come, or all wait for each other.

Someone has to be waiting: a pause that nobody waits for hurts nobody. How long is too long goes by the
job's own pace, and by what the missing rank is at: an evaluation on one rank alone is healthy.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from stepwarden.probes.naming import of_ranks
from stepwarden.probes.ranks import hung_words as words
from stepwarden.probes.ranks.pace import LONGER, Pace, overdue, pace
from stepwarden.probes.ranks.seen import PAUSES, TRAINING, Seen
from stepwarden.wire import Verdict

KIND = "RankHung"
DEFAULTS: Mapping[str, float] = MappingProxyType(
    {
        "seconds": 2.0,  # a step may be late by so much at any pace,
        "steps": 10.0,  # by so many median steps,
        "spreads": 8.0,  # by the median and so many of its deviations,
        "longest": 2.0,  # and by so many of the longest of the last steps
        "silent": 2.5,  # seconds without a word, after which a process may be stopped, or its machine gone
        "idle": 30.0,  # seconds that a rank may read, sleep or work on (or 100 median steps)
        "barrier": 120.0,  # seconds of the same, while the others wait in a barrier for it
        "pause": 600.0,  # seconds of evaluating, saving, compiling, of the first steps, or where nobody waits
    }
)
EXIT = 5.0  # seconds from a rank's last words to its exit code, which may say that it has failed
BARRIERS = frozenset({"barrier", "monitored_barrier"})  # where ranks wait for one that does something alone
PAIRED = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)  # they meet under other names


def judge(
    seen: Sequence[Seen],
    settings: Mapping[str, float],
    expected: int | None = None,
    gave_up: Collection[int] = (),
) -> Verdict:
    """
    Judge what all ranks are at.

    `expected`: how many there are, where that is known. `gave_up`: the ranks whose collectives timed out.
    """
    if gave_up and (verdict := for_nothing(seen, settings, gave_up)):
        return verdict
    states = {each.state for each in seen}
    if "held" in states or "failed" in states:
        return Verdict("unknown", "NotRunning", "a rank is held, or has failed: the others wait for that")
    live = [each for each in seen if each.state == "running"]
    if not live:
        return Verdict("unknown", "NoPulse", "no rank has said what it is at")
    limits = pace(live, settings)
    here = [each for each in live if each.silent < settings["silent"]]
    waiting = [each for each in here if each.waits >= settings["seconds"]] or spinning(here, live, limits)
    there = {each.rank for each in waiting}
    others = [each for each in live if each.rank not in there]
    if waiting:
        return for_others(waiting, others, seen, limits, settings, expected)
    if len(seen) == 1 and expected in {None, 1}:
        return alone(live[0], seen, limits)
    return nobody_waits(live, seen, limits, whole=len(here) == len(live))


def for_nothing(
    seen: Sequence[Seen], settings: Mapping[str, float], gave_up: Collection[int]
) -> Verdict | None:
    """Judge whom ranks have waited for that wait no more: the time that the user gave them is over."""
    live = [each for each in seen if each.state == "running" or each.rank in gave_up]
    waited = [each for each in live if each.rank in gave_up and each.waits]
    away = [
        each for each in live if each.rank not in gave_up and not each.waits and not each.pulse.collective
    ]
    return words.missing(away, waited, seen, pace(live, settings)) if waited and away else None


def for_others(  # noqa: PLR0913, PLR0917 - who waits, who doesn't, all of them, and what is asked of them
    waiting: Sequence[Seen],
    others: Sequence[Seen],
    seen: Sequence[Seen],
    limits: Pace,
    settings: Mapping[str, float],
    expected: int | None,
) -> Verdict:
    """Judge ranks some of which wait."""
    waited = max(each.waits or each.spins for each in waiting)
    met = all(each.pulse.collective in BARRIERS for each in waiting)
    away = [each for each in others if each.silent >= settings["silent"] or not each.pulse.collective]
    if not any(each.waits or each.pulse.phase in TRAINING for each in waiting):
        away = [each for each in away if each.stuck or each.silent >= settings["silent"]]
    late = [each for each in away if overdue(each, waited, limits, settings, met=met)]
    if late:
        return words.missing(late, waiting, seen, limits)
    if not others:
        return all_wait(waiting, seen, limits, whole=expected is None or len(seen) >= expected)
    return Verdict("ok", "Waiting", f"{of_ranks(words.ranks(others))} may still come")


def spinning(here: Sequence[Seen], live: Sequence[Seen], limits: Pace) -> list[Seen]:
    """Return ranks that may wait for their devices, where not all do: a device's wait uses the processor."""
    found = [each for each in here if each.spins >= limits.tight]
    return found if len(found) < len(live) else []


def all_wait(waiting: Sequence[Seen], seen: Sequence[Seen], limits: Pace, *, whole: bool) -> Verdict:
    """Judge where every rank that lives waits: for one that has ended, or in collectives that don't match."""
    waited = min(each.waits or each.spins for each in waiting)
    ended = [each for each in seen if each.state == "ended"]
    if ended and min(waited, *(each.silent - EXIT for each in ended)) >= limits.tight:
        return words.ended(ended, waiting, seen, limits)
    if len(waiting) == 1 or not whole:
        return Verdict("unknown", "NotAllKnown", "not every rank has said what it is at")
    names = {each.pulse.collective or each.pulse.phase for each in waiting}
    places = {(each.pulse.file, each.pulse.line) for each in waiting}
    other = unlike(waiting) or (len(names) > 1 and not names <= PAIRED)
    if waited >= (limits.tight if other else limits.long):
        return words.everyone(waiting, seen, limits, apart=other or len(places) > 1)
    return Verdict("ok", "Waiting", f"all ranks wait since {waited:.1f} s: in a collective of their own")


def unlike(waiting: Sequence[Seen]) -> bool:
    """Whether torch has recorded that ranks meet in one collective with other ones, or with other shapes."""
    same = len({each.recorded for each in waiting}) == 1 and waiting[0].recorded is not None
    return same and len({each.brings for each in waiting}) > 1


def alone(rank: Seen, seen: Sequence[Seen], limits: Pace) -> Verdict:
    """Judge the one rank of a job: nobody waits for it, so it is given more time."""
    training = rank.pulse.phase in TRAINING and not PAUSES & set(rank.pulse.marks)
    rest = max(rank.still, min(rank.silent, rank.within) if rank.silent > words.QUIET else 0.0)
    if rest >= (limits.long if training else LONGER * limits.pause):
        return words.stopped([rank], seen, limits, rest)
    return Verdict("ok", "Moving", f"the rank has moved {rest:.1f} s ago")


def nobody_waits(live: Sequence[Seen], seen: Sequence[Seen], limits: Pace, *, whole: bool) -> Verdict:
    """Judge ranks that don't wait for each other: they may pause together. `whole`: none is silent."""
    if len(live) < len(seen):
        return Verdict(
            "ok", "Ending", "nobody waits, and some ranks have ended: the others may save or upload"
        )
    if not whole:
        return Verdict("unknown", "Silent", "nobody waits for a rank that says nothing")
    rest = min(min(each.unmoved, each.within) for each in live)
    excused = any(PAUSES & set(each.pulse.marks) for each in live)
    if rest >= (LONGER * limits.pause if excused else limits.pause):
        return words.stopped(live, seen, limits, rest)
    return Verdict("ok", "Moving", f"nobody waits for a rank; the last has moved {rest:.1f} s ago")
