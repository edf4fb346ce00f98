"""
What the hub knows of its job: every pod's ranks, and the findings that all have had their say on.

Pure but for the clock, which is an argument (any clock, in seconds). Same input, same report:
hearing a thing twice changes nothing, so pods may say again what they are not sure was heard.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepwarden.attempt import MOST, NEVER, Moment, attempt_of, moment, stamped
from stepwarden.wire import Finding, JobReport, Orders, RankReport, to_line
from stepwarden_sidecar import agreement, causes, holding, room
from stepwarden_sidecar.causes import Causes
from stepwarden_sidecar.merge import OWN, Key, key, merge
from stepwarden_sidecar.ranks import LIVE, SILENT

KEPT = 1000  # findings, the last ones
LAST_STEP = 2**53  # what any JSON reader keeps exact
SETTLE = 4.0  # seconds (ranks look closer meanwhile) after which a finding is published without a rank's say


@dataclass(frozen=True, slots=True)
class Known:
    """A rank by its last report: when it came, and since when the rank is at that step in that state."""

    report: RankReport
    heard: float
    since: float


@dataclass(slots=True)
class Pending:
    """A finding that not all ranks have had their say on: first seen when, and what each says."""

    since: float
    seen: dict[int, Finding]


class Job:
    """The job's ranks and findings. `expected` is how many ranks it has, where that is known."""

    def __init__(self, expected: int | None, limit: int) -> None:
        self.expected, self.limit = expected, limit
        self.ranks: dict[int, Known] = {}
        self.pending: dict[Key, Pending] = {}
        self.settled: dict[Key, Finding] = {}
        self.sizes: dict[Key, int] = {}  # of the settled ones, in bytes
        self.counts: Counter[tuple[str, str]] = Counter()  # by kind and severity, also of those forgotten
        self.unsound = -1  # the last step that some rank found bad
        self.causes = Causes()
        self.anew = False  # whether a rank has begun again since that was last asked
        self.attempt = 0  # the last of which something was heard
        self.forgotten: Moment = NEVER  # the last of which findings were forgotten: none comes back as new

    def heard(self, ranks: Iterable[RankReport], now: float) -> None:
        """Take in a pod's ranks; one whose number the job can't have is left out."""
        for report in ranks:
            if not 0 <= report.rank < self.limit or not possible(report):
                continue
            self.begin(report.attempt)
            known = self.ranks.get(report.rank)
            if known and is_another(known.report, report):
                self.causes.restarted()
                self.anew = True
            same = known and (known.report.state, known.report.step) == (report.state, report.step)
            since = known.since if known and same else now
            self.ranks[report.rank] = Known(report, now, since)

    def found(self, findings: Iterable[Finding], now: float) -> None:
        """Take in ranks' own findings; what is settled, or was seen of the same rank, stays as it is."""
        for finding in findings:
            self.begin(attempt_of(finding))
            if agreement.spoils(finding) and attempt_of(finding) == self.attempt:
                self.unsound = max(self.unsound, finding.step)
            fits = self.forgotten < moment(finding) and finding.step <= LAST_STEP
            known = not fits or key(finding) in self.settled
            if known or finding.rank is None or not 0 <= finding.rank < self.limit:
                continue
            pending = self.pending.setdefault(key(finding), Pending(now, {}))
            pending.seen.setdefault(finding.rank, finding)

    def begin(self, attempt: int) -> None:
        """Take in that an attempt has begun: what was bad in the one before says nothing of its steps."""
        if attempt > self.attempt:
            self.attempt, self.unsound = attempt, -1

    def begun_anew(self) -> bool:
        """Whether a rank has begun again, asked once."""
        anew, self.anew = self.anew, False
        return anew

    def settle(self, now: float) -> list[Finding]:
        """Publish the findings that nothing more is to be waited for; return them."""
        done = [each for each, pending in self.pending.items() if self.is_settled(each, pending, now)]
        made, ended = [], self.ended
        patience = causes.ENDED if ended else causes.WAIT  # for a lost peer's own word
        for finding, pending in sorted(((self.merged(each), self.pending[each]) for each in done), key=lost):
            late = now >= pending.since + patience or len(self.pending) > KEPT
            judged = self.causes.judge(finding, late=late, ended=ended)
            if judged is not None:
                del self.pending[key(finding)]
                self.causes.published([judged])
                made.append(judged)
        self.restore(made)
        return made

    def compared(self, findings: Iterable[Finding]) -> list[Finding]:
        """Take in what the ranks' comparison found: it is settled as it is. Return what was not known."""
        made = [stamped(each, self.attempt) for each in findings]
        new = [each for each in made if moment(each) > self.forgotten and key(each) not in self.settled]
        for each in new:
            self.pending.pop(key(each), None)
        self.causes.published(new)
        self.restore(new)
        return new

    @property
    def ended(self) -> tuple[int, ...]:
        """The ranks that have ended by their own word."""
        return tuple(sorted(rank for rank, known in self.ranks.items() if known.report.state == "ended"))

    @property
    def gave_up(self) -> frozenset[int]:
        """The ranks that failed as a collective timed out, and whose cause is not known yet."""
        words = (finding for pending in self.pending.values() for finding in pending.seen.values())
        return frozenset(each.rank for each in words if each.rank is not None and causes.timed_out(each))

    def merged(self, which: Key) -> Finding:
        """Make one finding of what ranks say of it."""
        return merge(self.pending[which].seen, alone=(self.expected or len(self.ranks)) == 1)

    @property
    def gone(self) -> frozenset[int]:
        """The ranks that take no more steps."""
        return frozenset(rank for rank, known in self.ranks.items() if known.report.state not in LIVE)

    def is_settled(self, which: Key, pending: Pending, now: float) -> bool:
        """Whether every rank that lives has been through the finding's step, or has had its time."""
        kind, step, *_ = which
        if kind in OWN or now >= pending.since + SETTLE or len(self.pending) > KEPT:
            return True
        all_known = self.expected is None or len(self.ranks) >= self.expected
        live = [known.report for known in self.ranks.values() if known.report.state in LIVE]
        return all_known and all(report.step >= step for report in live)

    def restore(self, findings: Iterable[Finding]) -> None:
        """Take in settled findings, as they were published; the oldest beyond `KEPT` are forgotten."""
        for finding in findings:
            self.begin(attempt_of(finding))
            self.settled[key(finding)] = finding
            self.sizes[key(finding)] = len(to_line(finding))
            known = len(self.counts) < room.KINDS or (finding.kind, finding.severity) in self.counts
            self.counts[finding.kind if known else room.OTHER, finding.severity] += 1
        while len(self.settled) > KEPT:
            which = next(iter(self.settled))
            oldest = self.settled.pop(which)
            del self.sizes[which]
            self.forgotten = max(self.forgotten, moment(oldest))

    def views(self) -> list[holding.Rank]:
        """Return the ranks as holding sees them."""
        return [
            holding.Rank(
                state=known.report.state,
                step=known.report.step,
                since=known.since,
                steps_per_second=known.report.steps_per_second,
            )
            for known in self.ranks.values()
        ]

    def shape(self, now: float) -> tuple[object, ...]:
        """Return what the report's version stands for, beside the orders: not the healthy steps."""
        ranks = sorted((r.rank, r.pod, r.state, word(r.reason), r.saved) for r in self.reports(now))
        return (*ranks, sum(self.counts.values()))

    def reports(self, now: float) -> list[RankReport]:
        """Return the ranks' reports; of one whose pod has fallen silent, saying so."""
        return [aged(self.ranks[rank], now) for rank in sorted(self.ranks)]

    def report(self, version: str, orders: Orders, now: float) -> JobReport:
        """Return all that is known."""
        findings = room.fitting(self.settled, self.sizes)
        return JobReport(version=version, ranks=tuple(self.reports(now)), findings=findings, orders=orders)


def is_another(before: RankReport, report: RankReport) -> bool:
    """Whether a rank is another process than before: it lives again, or its steps begin again."""
    again = report.attempt > before.attempt or report.step < before.step
    return report.state in LIVE and (before.state not in LIVE or again)


def lost(settling: tuple[Finding, Pending]) -> bool:
    """Whether a finding is of a rank that lost a peer: what came with it may be the cause, and goes first."""
    return settling[0].evidence.get("local") is False and settling[0].kind in OWN


def possible(report: RankReport) -> bool:
    """Whether a rank can be where its report says: what a broken pod says must not reach a boundary."""
    speed = report.steps_per_second
    counts = -1 <= report.step <= LAST_STEP and 0 <= report.attempt < MOST
    return counts and (speed is None or (math.isfinite(speed) and speed >= 0))


def aged(known: Known, now: float) -> RankReport:
    """Return a rank's report, with the silence of its pod as the reason where there is one."""
    silent = now - known.heard
    if silent <= SILENT or known.report.state not in LIVE:
        return known.report
    return replace(known.report, reason=f"silent for {silent:.0f} s")


def word(reason: str) -> str:
    """Return a reason without the count that grows each second."""
    return "silent" if reason.startswith("silent for ") else reason
