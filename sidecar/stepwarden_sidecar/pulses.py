"""
What all ranks are at: their last pulses by the hub's own clock, and what is found in them side by side.

Pure but for the clock, which is an argument. A rank's `time` is only ever compared with the same rank's,
to know whether it has spoken again: clocks of machines may be an hour apart.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stepwarden.probes.ranks import rank_hung, rank_straggling
from stepwarden.probes.ranks.rank_straggling import KEPT, Lap
from stepwarden.probes.ranks.seen import PAUSES, Seen
from stepwarden.pulse import Pulse
from stepwarden.wire import Finding, Verdict
from stepwarden_sidecar.job import Known
from stepwarden_sidecar.ranks import LIVE

log = logging.getLogger(__name__)

EVERY = 0.2  # seconds between two looks
ASLEEP = 2.0  # seconds between two looks after which the hub itself was stopped: nobody is to blame for that
CUT = 2.5  # seconds after which a pod that says nothing is out of reach; it speaks each second
STEPS = 5  # of a lap, on every rank
SECONDS = 1.0  # after which fewer will do

Settings = Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class Heart:
    """A rank's last pulse; since when it tells the same (`moved`), and when it spoke last (`spoke`)."""

    pulse: Pulse
    spoke: float
    moved: float
    began: float  # when this process was first heard of
    word: float = 0.0  # the rank's own time of its last report
    excused: bool = False  # a pause was seen in this lap

    def shift(self, seconds: float) -> None:
        """Leave out a time in which the hub could hear nobody."""
        self.spoke += seconds
        self.moved += seconds
        self.began += seconds


class Pulses:
    """All ranks' pulses, and what was said of them. `settings` are those of the probes that run."""

    def __init__(self, limit: int, expected: int | None, settings: Settings) -> None:
        self.limit, self.expected, self.settings = limit, expected, settings
        self.hearts: dict[int, Heart] = {}
        self.looked: float | None = None
        self.since = 0.0  # since when stillness counts: no rank has been held since
        self.hung: Finding | None = None
        self.over: list[Finding] = []  # hangs that have ended by themselves, and nobody was told yet
        self.starts: dict[int, Pulse] = {}  # of the lap
        self.lap_began = 0.0
        self.laps: deque[Lap] = deque(maxlen=KEPT)
        self.slow: dict[int, str] = {}  # ranks that were said to be slow, and in which phase

    def take(self, pulses: Iterable[Pulse], now: float) -> None:
        """Take in pulses; one that is known already is no new word."""
        for pulse in pulses:
            if not 0 <= pulse.rank < self.limit:
                continue
            known = self.hearts.get(pulse.rank)
            if known is None or pulse.steps < known.pulse.steps:
                self.starts.clear()
                self.hearts[pulse.rank] = Heart(pulse, now, now, now)
            elif pulse != known.pulse:
                known.moved = now if place(pulse) != place(known.pulse) else known.moved
                known.pulse, known.spoke = pulse, now
            self.hearts[pulse.rank].excused |= bool(PAUSES & set(pulse.marks))

    def look(self, ranks: Mapping[int, Known], now: float, gave_up: Collection[int] = ()) -> list[Finding]:
        """Judge the ranks that are known, now and then; return what is new. `gave_up`: who waits no more."""
        if self.looked is not None and now < self.looked + EVERY:
            return []
        self.wake(now)
        for rank, known in ranks.items():
            heart = self.hearts.get(rank)
            if heart and known.report.time != heart.word:
                heart.word, heart.spoke = known.report.time, now
            if known.report.state == "held":
                self.since = now
                self.starts.clear()
        return [*self.hangs(ranks, now, gave_up), *self.straggles(ranks, now)]

    def wake(self, now: float) -> None:
        """Begin, or go on; after a sleep of the hub's own, as if it had not been."""
        gap = now - self.looked if self.looked is not None else 0.0
        if self.looked is None:
            self.since = now
        elif gap > ASLEEP:
            self.since += gap
            for heart in self.hearts.values():
                heart.shift(gap)
        self.looked = now

    def hangs(self, ranks: Mapping[int, Known], now: float, gave_up: Collection[int]) -> list[Finding]:
        """Look for ranks that hang; what lasts is said once."""
        settings = self.settings.get(rank_hung.KIND)
        if settings is None:
            return []
        verdict = rank_hung.judge(self.seen(ranks, now), settings, self.expected, gave_up)
        before, self.hung = self.hung, kept(self.hung, verdict)
        if before and not self.hung:
            self.over.append(before)
            log.info("%s is over: %s", rank_hung.KIND, verdict.message)
        return [self.hung] if self.hung and not before else []

    def seen(self, ranks: Mapping[int, Known], now: float) -> list[Seen]:
        """Put all ranks as the probe sees them."""
        return [
            Seen(
                pulse=heart.pulse,
                state=ranks[rank].report.state,
                silent=now - heart.spoke,
                cut=now - ranks[rank].heard > CUT,
                unmoved=now - heart.moved,
                within=now - max(self.since, heart.began),
            )
            for rank, heart in sorted(self.hearts.items())
            if rank in ranks
        ]

    def straggles(self, ranks: Mapping[int, Known], now: float) -> list[Finding]:
        """Look for ranks that are slow, whenever all have made a few steps; what lasts is said once."""
        settings = self.settings.get(rank_straggling.KIND)
        if settings is None or not self.end_lap(ranks, now):
            return []
        found = {each.rank: each for each in rank_straggling.slow(self.laps, settings)}
        for rank in [r for r in self.slow if rank_straggling.recovered(r, self.laps, settings)]:
            log.info("%s is over: rank %d keeps up with the others", rank_straggling.KIND, rank)
            del self.slow[rank]
        new = [each for each in found.values() if self.slow.get(each.rank) != each.phase]
        self.slow |= {each.rank: each.phase for each in new}
        finding = rank_straggling.tell(new, self.laps[-1]).finding if new else None
        return [finding] if finding else []

    def end_lap(self, ranks: Mapping[int, Known], now: float) -> bool:
        """End a lap once every rank that lives is through with it, and begin the next; True where it did."""
        live = {r: h for r, h in self.hearts.items() if r in ranks and ranks[r].report.state in LIVE}
        if len(live) < 2:  # noqa: PLR2004 - what a comparison takes
            return False
        parts = Lap({})
        if self.starts.keys() >= live.keys():
            made = {rank: heart.pulse.steps - self.starts[rank].steps for rank, heart in live.items()}
            least = 1 if now >= self.lap_began + SECONDS else STEPS
            if min(made.values()) < least:
                return False
            parts = Lap(
                {
                    rank: rank_straggling.part(self.starts[rank], heart.pulse)
                    for rank, heart in live.items()
                    if not heart.excused
                }
            )
            self.laps.append(parts)
        self.starts = {rank: heart.pulse for rank, heart in live.items()}
        self.lap_began = now
        for heart in live.values():
            heart.excused = bool(PAUSES & set(heart.pulse.marks))
        return len(parts) > 1


def kept(before: Finding | None, verdict: Verdict) -> Finding | None:
    """Return the hang there is: what can't be told leaves it as it was."""
    if verdict.status == "bad":
        return before or verdict.finding
    return before if verdict.status == "unknown" else None


def place(pulse: Pulse) -> tuple[object, ...]:
    """Return what changes as a rank goes on."""
    return (pulse.step, pulse.steps, pulse.phase, pulse.sequence)
