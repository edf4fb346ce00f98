"""What one pod knows of its own ranks, from their datagrams: pure but for the clock, which is an argument."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stepwarden import attempt
from stepwarden.pulse import Pulse
from stepwarden.wire import Finding, RankReport, RankState, State, StepTaken
from stepwarden_sidecar.merge import OWN, Own

SILENT = 5.0  # seconds without a RankState, which comes once a second
AGENT = "agent"  # the name under which an agent says that it can't tell anything any more
WINDOW = 10  # steps that the speed is taken over
LIVE = frozenset({"running", "held"})
BUCKETS = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0)  # seconds, two a decade


@dataclass(slots=True)
class Rank:
    """One rank: its last words, and what is summed over its steps."""

    rank: int
    heard: float  # when its last RankState came, on the reader's clock
    state: State = "running"
    step: int = -1
    time: float = 0.0
    pid: int = 0
    reason: str = ""
    saved: int = 0
    attempt: int = 0
    last: StepTaken | None = None
    pulse: Pulse | None = None  # the last that says a line of the user's
    seen: float = 0.0  # when that came, on the reader's clock
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    counts: list[int] = field(
        default_factory=lambda: [0] * (len(BUCKETS) + 1)
    )  # not cumulative; the last: above
    seconds: float = 0.0
    overhead: float = 0.0
    dropped: int = 0
    dead: bool = False  # its lifeline is closed: at its socket's name there may be another process
    before: frozenset[Own] = frozenset()  # what ranks were told when it took another process' place

    @property
    def steps_per_second(self) -> float | None:
        """Its speed by its own step times; None before two steps, and while it does not run."""
        total = sum(self.recent)
        return len(self.recent) / total if total > 0 and self.state == "running" else None

    def report(self, pod: int, now: float) -> RankReport:
        """Put what is known as the report that the hub takes."""
        silent = now - self.heard
        alive = self.state in {"running", "held"}
        return RankReport(
            rank=self.rank,
            pod=pod,
            state=self.state,
            step=self.step,
            time=self.time,
            loss=self.last.loss if self.last else None,
            gradient_norm=self.last.gradient_norm if self.last else None,
            steps_per_second=self.steps_per_second,
            agree=self.last is not None and self.last.agree,
            saved=self.saved,
            attempt=self.attempt,
            reason=f"silent for {silent:.0f} s" if alive and silent > SILENT else self.reason,
        )


class Ranks:
    """The pod's ranks, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.known: dict[int, Rank] = {}

    def __iter__(self) -> Iterator[Rank]:
        return iter([self.known[rank] for rank in sorted(self.known)])

    def valid(self, rank: int | None) -> bool:
        """Whether a number can be a rank's."""
        return rank is not None and 0 <= rank < self.limit

    def said(self, message: RankState, now: float) -> None:
        """Take in where a rank says it is; another process under the same number starts anew."""
        known = self.known.get(message.rank)
        if known and known.pid == message.pid != 0 and known.state not in LIVE and message.state in LIVE:
            return  # said before its last words, or before it was killed
        if known is None or message.pid not in {known.pid, 0}:
            kept = known if known and known.pid == 0 else Rank(rank=message.rank, heard=now)
            known = self.known[message.rank] = kept
        known.heard, known.state, known.time = now, message.state, message.time
        known.saved, known.attempt = message.saved, message.attempt
        known.pid, known.reason = message.pid or known.pid, message.reason or message.unknown.get(AGENT, "")
        # A running rank may say its step before that step's findings are here; its StepTaken comes after.
        if message.state != "running" or known.last is None:
            known.step = max(known.step, message.step)

    def stepped(self, message: StepTaken, now: float) -> None:
        """Take in a step."""
        known = self.known.setdefault(message.rank, Rank(rank=message.rank, heard=now))
        known.last, known.time, known.dropped = message, message.time, message.dropped
        known.step = max(known.step, message.step)
        if countable(message.overhead_seconds):
            known.overhead += message.overhead_seconds
        if message.seconds is not None and countable(message.seconds):
            known.recent.append(message.seconds)
            known.seconds += message.seconds
            known.counts[sum(bound < message.seconds for bound in BUCKETS)] += 1

    def beat(self, pulse: Pulse, now: float) -> None:
        """Take in what a rank's main thread is at."""
        known = self.known.get(pulse.rank)
        if known and pulse.file:
            known.pulse, known.seen = pulse, now

    def stamped(self, finding: Finding) -> Finding:
        """Say in the evidence of a rank's end which process it was, and in which attempt."""
        known = self.known.get(finding.rank) if finding.kind in OWN and finding.rank is not None else None
        if known is None or not known.pid or "pid" in finding.evidence:
            return finding
        whose = replace(finding, evidence={**finding.evidence, "pid": known.pid})
        return attempt.stamped(whose, known.attempt)


def countable(seconds: float) -> bool:
    """Whether a duration can be added to a sum without spoiling it."""
    return math.isfinite(seconds) and seconds >= 0
