"""
RankStraggling: a rank needs more time of its own for a step than the others do.

Time inside collectives is waiting, and doesn't count: who waits for a slow rank is not slow. Steps differ by
themselves, so a rank is called slow only where the difference stands out from its own variation, or is plain.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from types import MappingProxyType

from stepwarden.probes.naming import of_ranks
from stepwarden.probes.ranks.seen import number
from stepwarden.pulse import Pulse
from stepwarden.wire import Finding, Verdict

KIND = "RankStraggling"
DEFAULTS: Mapping[str, float] = MappingProxyType(
    {
        "factor": 1.5,  # of the median of the other ranks' own time
        "seconds": 0.02,  # a step, that it takes longer at least,
        "part": 0.1,  # and of the whole step
        "laps": 8.0,  # in a row that are looked at, each of 5 steps or a second
        "plain": 6.0,  # the factor that is plain after two laps
    }
)
KEPT = 32  # laps
SURE = 6.0  # standard errors that the mean difference is from none at least,
FEW = 4.0  # and more for few laps (Student's t; 8 laps: 9, by chance 1 in 40,000 where times are normal)
PLAIN_STEPS = 7  # steps of the two laps
ENOUGH = 4  # laps that show how far a rank's laps differ by themselves,
APART = 4.0  # and standard deviations of these by which a lap stands out
STEADY = 0.7  # of what is plain in both, in each of the two laps
RECOVERED = 0.5  # of the excess that makes a factor
MOST = 1e6  # seconds a step that are believed
SHOWN = 16  # ranks whose times are in the evidence
WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Part:
    """
    A rank's part of a lap: `own` seconds a step by phase, `period` those of the whole step.

    `typical` is the median of its last whole steps.
    """

    steps: int
    step: int
    own: Mapping[str, float]
    period: float
    typical: float
    node: str = ""

    @property
    def total(self) -> float:
        """Its own seconds a step."""
        return sum(self.own.values())

    def seconds(self, phase: str | None) -> float:
        """Return its own seconds a step in a phase, or in all."""
        return self.total if phase is None else self.own.get(phase, 0.0)


class Lap(dict[int, Part]):
    """All ranks' parts of one lap; of a thousand, each is put beside the others' median."""

    def __init__(self, parts: Mapping[int, Part]) -> None:
        """Take the parts by rank."""
        super().__init__(parts)
        self.ordered: dict[str | None, list[float]] = {}

    def others(self, rank: int, phase: str | None = None) -> float:
        """Return the median of the other ranks' own seconds a step, in a phase or in all."""
        if phase not in self.ordered:
            self.ordered[phase] = sorted(each.seconds(phase) for each in self.values())
        ordered = self.ordered[phase]
        mine = bisect_left(ordered, self[rank].seconds(phase))
        middle = (len(ordered) - 2) / 2
        below, above = math.floor(middle), math.ceil(middle)
        return (ordered[below + (below >= mine)] + ordered[above + (above >= mine)]) / 2


@dataclass(frozen=True, slots=True)
class Slow:
    """A rank that is slow: own seconds a step against the others', and where most of it is spent."""

    rank: int
    own: float
    others: float
    phase: str
    in_phase: tuple[float, float]
    last: Part

    @property
    def factor(self) -> float:
        """How many times as long it takes."""
        return self.own / self.others if self.others > 0 else math.inf


def part(start: Pulse, end: Pulse) -> Part:
    """Make a rank's part of a lap of the pulses at its ends; the latter has counted more steps."""
    steps = end.steps - start.steps
    spent = {
        phase: min(number(seconds - start.spent.get(phase, 0.0)) / steps, MOST)
        for phase, seconds in end.spent.items()
    }
    own = {phase: seconds for phase, seconds in spent.items() if phase != WAITING}
    return Part(steps, end.step - 1, own, sum(spent.values()), number(end.median), end.node)


def slow(laps: Sequence[Lap], settings: Mapping[str, float]) -> Iterator[Slow]:
    """Yield the ranks that are slow by the last laps; only those are looked at closely that may be."""
    totals = {rank: each.total for rank, each in laps[-1].items()} if laps else {}
    middle = median(totals.values()) if totals else 0.0
    slowest = heapq.nlargest(SHOWN, totals, key=lambda rank: totals[rank])
    for rank in sorted(slowest):
        if totals[rank] > middle and (found := judge(rank, laps, settings)):
            yield found


def judge(rank: int, laps: Sequence[Lap], settings: Mapping[str, float]) -> Slow | None:
    """Say whether a rank is slow: plainly in two laps, or beyond doubt in more."""
    recent = since(rank, laps)
    if len(recent) > 1 and unlike(rank, recent) and plainly(rank, recent[-2:], settings):
        return measured(rank, recent[-2:])
    count = int(settings["laps"])
    while 1 < count <= len(recent):
        if surely(rank, recent[-count:], settings):
            return measured(rank, recent[-count:])
        count *= 2
    return None


def since(rank: int, laps: Sequence[Lap]) -> list[Lap]:
    """Return the last laps on end that a rank and another one took part in."""
    taken: list[Lap] = []
    for lap in reversed(laps):
        if rank not in lap or len(lap) == 1:
            break
        taken.append(lap)
    return taken[::-1]


def plainly(rank: int, laps: Sequence[Lap], settings: Mapping[str, float]) -> bool:
    """
    Whether a rank takes several times as long, in each of the laps.

    So may one whose data stalls now and then: it is plain only where the typical step is as slow as the mean,
    and where this rank's own time makes it so.
    """
    whole, parts = measured(rank, laps), [lap[rank] for lap in laps]
    return (
        sum(each.steps for each in parts) >= PLAIN_STEPS
        and all(measured(rank, [lap]).factor >= STEADY * settings["plain"] for lap in laps)
        and all(each.total >= STEADY * each.period for each in parts)
        and parts[-1].typical >= STEADY * whole.own
        and whole.factor >= settings["plain"]
        and weighs(whole, settings)
    )


def unlike(rank: int, laps: Sequence[Lap]) -> bool:
    """Whether the last two laps stand out from those before, where there are some to tell by."""
    more = [lap[rank].total - lap.others(rank) for lap in laps]
    before, last = more[:-2], more[-2:]
    return len(before) < ENOUGH or min(last) > fmean(before) + APART * stdev(before)


def surely(rank: int, laps: Sequence[Lap], settings: Mapping[str, float]) -> bool:
    """Whether a rank takes longer by more than laps differ by themselves."""
    whole = measured(rank, laps)
    if whole.factor < settings["factor"] or not weighs(whole, settings):
        return False
    more = [lap[rank].total - lap.others(rank) for lap in laps]
    count = len(more)
    return fmean(more) > SURE * (1 + FEW / count) * stdev(more) / math.sqrt(count)


def weighs(found: Slow, settings: Mapping[str, float]) -> bool:
    """Whether it matters to the whole step."""
    return found.own - found.others >= max(settings["seconds"], settings["part"] * found.last.period)


def recovered(rank: int, laps: Sequence[Lap], settings: Mapping[str, float]) -> bool:
    """Whether a rank that was slow no longer is."""
    recent = since(rank, laps)[-int(settings["laps"]) :]
    if len(recent) < settings["laps"]:
        return False
    return measured(rank, recent).factor < 1 + RECOVERED * (settings["factor"] - 1)


def measured(rank: int, laps: Sequence[Lap]) -> Slow:
    """Put a rank's own time beside the median of the others' over laps."""
    last = laps[-1][rank]
    steps = [lap[rank].steps for lap in laps]
    own = weighted([lap[rank].total for lap in laps], steps)
    rest = weighted([lap.others(rank) for lap in laps], steps)
    phases = {
        phase: (
            weighted([lap[rank].own.get(phase, 0.0) for lap in laps], steps),
            weighted([lap.others(rank, phase) for lap in laps], steps),
        )
        for phase in last.own
    }
    most = max(phases, key=lambda phase: phases[phase][0] - phases[phase][1], default="")
    return Slow(rank, own, rest, most, phases.get(most, (0.0, 0.0)), last)


def weighted(values: Sequence[float], steps: Sequence[int]) -> float:
    """Return the mean a step over laps of so many steps."""
    return sum(value * count for value, count in zip(values, steps, strict=True)) / max(sum(steps), 1)


def tell(found: Sequence[Slow], lap: Lap) -> Verdict:
    """Make one finding of the ranks that turned out to be slow."""
    worst = max(found, key=lambda each: each.own - each.others)
    ranks = sorted(each.rank for each in found)
    also = [rank for rank in ranks if rank != worst.rank]
    more = f" (so {'is' if len(also) == 1 else 'are'} {of_ranks(also)})" if also else ""
    mine, theirs = worst.in_phase
    at = f" on {worst.last.node}" if worst.last.node else ""
    times = f"{worst.factor:.2g} times" if math.isfinite(worst.factor) else "far beyond"
    message = (
        f"rank {worst.rank}{at} is slow{more}: it takes {worst.own:.3g} s of its "
        f"own a step, {times} the {worst.others:.3g} s of the other ranks, most of it in "
        f"{called(worst.phase)} ({mine:.3g} s against {theirs:.3g} s); the others wait for it"
    )
    own = {str(rank): round(lap[rank].total, 6) for rank in [*ranks, *sorted(set(lap) - set(ranks))][:SHOWN]}
    finding = Finding(
        kind=KIND,
        severity="warning",
        step=max(0, worst.last.step),
        rank=worst.rank,
        ranks=tuple(ranks),
        message=message,
        evidence={
            "phase": worst.phase,
            "factor": worst.factor,
            "own_seconds": worst.own,
            "others_seconds": worst.others,
            "phase_seconds": mine,
            "phase_others_seconds": theirs,
            "step_seconds": worst.last.period,
            "node": worst.last.node,
            "own": own,
        },
    )
    return Verdict("bad", "Slow", message, finding)


def called(phase: str) -> str:
    """Name a phase."""
    return {"data": "the code between two steps (data)", "optimizer": "the optimizer"}.get(
        phase, f"the {phase} pass"
    )
