"""How long is too long, by the job's own pace: the limits of RankHung. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepwarden.probes.ranks.seen import PAUSES, TRAINING, Seen, number

YOUNG = 5  # steps before which a job has no pace
MANY = 100.0  # median steps that a rank may work, or stand still between two steps
BETWEEN = 2.0  # a silent rank between two steps: a collection of garbage can hold all its threads
RESTING = 0.75  # of the limit, that a rank has to stand still: its agent looks twice a second
LONGER = 3.0  # times the longest pause, where nobody waits for it or one prepares for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    Limits in seconds.

    `tight`: for who should be doing something else by now; `long`: for who may be at something unusual;
    `meeting`: the same, while the others wait in a barrier; `pause`: for what is known to take long.
    """

    tight: float
    long: float
    meeting: float
    pause: float


def pace(seen: Sequence[Seen], settings: Mapping[str, float]) -> Pace:
    """Take the limits from the ranks' last steps; from the slowest, as all wait for it."""
    pause = settings["pause"]
    if any(each.pulse.steps < YOUNG for each in seen):
        return Pace(tight=pause, long=pause, meeting=pause, pause=pause)
    median = max(number(each.pulse.median) for each in seen)
    if not median:
        return Pace(tight=pause, long=pause, meeting=pause, pause=pause)
    spread = max(number(each.pulse.spread) for each in seen)
    longest = max(number(each.pulse.longest) for each in seen)
    by_spread = median + settings["spreads"] * spread
    tight = max(settings["seconds"], settings["steps"] * median, by_spread, settings["longest"] * longest)
    long = max(settings["idle"], MANY * median, tight)
    return Pace(tight=tight, long=long, meeting=max(settings["barrier"], long), pause=max(pause, long))


def overdue(missing: Seen, waited: float, limits: Pace, settings: Mapping[str, float], *, met: bool) -> bool:
    """Whether a rank that others have waited for (seconds; `met`: all in a barrier) is away for too long."""
    if missing.silent >= settings["silent"]:
        return missing.silent >= silence(missing, limits, settings)
    limit = allowed(missing, limits, met=met)
    at_rest = missing.unmoved if limit >= limits.long else missing.still / RESTING
    return min(waited, at_rest, missing.within) >= limit


def silence(missing: Seen, limits: Pace, settings: Mapping[str, float]) -> float:
    """Return for how long a rank may say nothing: its agent speaks whatever the main thread is at."""
    least = max(settings["silent"], min(limits.tight, settings["idle"]))
    if PAUSES & set(missing.pulse.marks):
        return max(settings["idle"], least)
    return least * (1.0 if missing.pulse.phase in TRAINING else BETWEEN)


def allowed(missing: Seen, limits: Pace, *, met: bool) -> float:
    """Return for how long a rank may be at what it is at."""
    marks = set(missing.pulse.marks)
    between = missing.pulse.phase not in TRAINING
    if missing.pulse.phase == "starting" and not missing.still:
        return LONGER * limits.pause  # one rank prepares the data, and the others meet in a barrier
    if PAUSES & marks or missing.pulse.phase == "starting" or (between and not missing.still):
        return limits.pause
    if met:
        return limits.meeting
    if not missing.still or "loading" in marks:
        return limits.long
    return limits.tight if missing.locked or not between else limits.long
