"""
The ranks' steps side by side: what the hub gathers of replicas, until it can compare them. Pure.

Ranks that wait for each other in a reduction are a step apart at most. Those that lost it may be far apart,
so a step is kept until all have been through it, or its place is needed; the first one longest.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from stepwarden.probes import replicas
from stepwarden.probes.replicas import (
    Together,
    gradient_not_synchronized,
    gradient_scale_wrong,
    replicas_diverged,
)
from stepwarden.probes.replicas.together import SUPPOSED
from stepwarden.replica import Replica
from stepwarden.wire import Finding, Verdict

log = logging.getLogger(__name__)

ROOM = 4096  # records that wait for other ranks'
STREAMS = 256  # groups of ranks, times optimizers, that are remembered
PATIENCE = 2.0  # seconds after which what some ranks say is judged without the rest
CAUSES = frozenset({gradient_not_synchronized.KIND, gradient_scale_wrong.KIND})  # of replicas that part
AGREED = 3  # steps with the same gradients of different inputs, after which ranks are taken for replicas

Stream = tuple[str, int]  # group and optimizer
Key = tuple[Stream, int]  # and count


@dataclass(slots=True)
class Gathering:
    """What ranks say of one step: since when (any clock, in seconds), and whether it was judged early."""

    since: float
    records: dict[int, Replica] = field(default_factory=dict)
    early: bool = False

    @property
    def size(self) -> int:
        """How many ranks there are to come."""
        return max(record.size for record in self.records.values())


@dataclass(slots=True)
class Course:
    """What is remembered of a stream: its last step, who takes part, and what was said already."""

    last: tuple[Replica, ...] = ()
    members: dict[int, Replica] = field(default_factory=dict)  # by rank: its last step
    silent: set[str] = field(default_factory=set)  # kinds that are bad, and were said
    agreed: int = 0
    twins: bool = False  # ranks that may be replicas began with the same parameters
    reasons: set[tuple[str, str]] = field(default_factory=set)  # kinds and why they could not be told, logged
    cause: int | None = None  # the step at which what makes replicas part was first said


class Replicas:
    """All ranks' steps that still have to be compared."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open: dict[Key, Gathering] = {}
        self.courses: dict[Stream, Course] = {}
        self.waiting = 0
        self.touched: dict[Key, None] = {}  # since the last comparison
        self.swept = (0.0, 0)  # when all that waits was looked at, and how many ranks were gone
        self.restored: frozenset[str] = frozenset()

    def restore(self, findings: Iterable[Finding]) -> None:
        """Know what was said before a restart: it is not said again until the ranks have agreed once."""
        self.restored = frozenset(finding.kind for finding in findings) & frozenset(replicas.KINDS)

    def take(self, records: Iterable[Replica], now: float) -> None:
        """Take in what ranks say of their steps; what is said again is passed over."""
        for record in records:
            if not 0 <= record.rank < self.limit or record.size < 2 or record.count < 0:  # noqa: PLR2004
                continue
            stream = (record.group, record.optimizer)
            course = self.course(stream)
            known = course.members.get(record.rank)
            if known and known.run != record.run:
                self.began_anew(stream, record.rank)
            elif known and record.count <= known.count:
                continue
            course.members[record.rank] = record
            key = (stream, record.count)
            gathering = self.open.setdefault(key, Gathering(now))
            self.waiting += record.rank not in gathering.records
            gathering.records[record.rank] = record
            self.touched[key] = None
        self.make_room()

    def course(self, stream: Stream) -> Course:
        """Return what is remembered of a stream; of too many, the earliest is forgotten."""
        if stream not in self.courses:
            self.courses[stream] = Course(silent=set(self.restored))
            if len(self.courses) > STREAMS:
                del self.courses[next(iter(self.courses))]
        return self.courses[stream]

    def began_anew(self, stream: Stream, rank: int) -> None:
        """Drop what another process under the same number had said."""
        course = self.course(stream)
        course.last, course.agreed = (), 0
        for key in [key for key in self.open if key[0] == stream and rank in self.open[key].records]:
            del self.open[key].records[rank]
            self.waiting -= 1
            if not self.open[key].records:
                del self.open[key]

    def make_room(self) -> None:
        """Drop the earliest steps beyond the room, a stream's first one last."""
        for key in sorted(self.open, key=lambda key: key[1] == 0) if self.waiting > ROOM else ():
            if self.waiting <= ROOM:
                return
            self.waiting -= len(self.open.pop(key).records)

    def compare(self, gone: Collection[int], now: float, *, closing: bool = False) -> list[Finding]:
        """Judge the steps that nothing more is to be waited for; `gone` are ranks that ended or failed."""
        found: list[Finding] = []
        for key in self.due(len(gone), now, closing=closing):
            gathering = self.open[key]
            course = self.course(key[0])
            missing = {rank for rank in course.members if rank not in gathering.records and rank in gone}
            whole = len(gathering.records) + len(missing) >= gathering.size
            late = not gathering.early and now >= gathering.since + PATIENCE
            if whole:
                self.waiting -= len(self.open.pop(key).records)
            elif not late and not closing:
                continue
            gathering.early = True
            records = tuple(gathering.records[rank] for rank in sorted(gathering.records))
            if len(records) > 1:
                found += self.judge(course, records, whole=whole)
        return found

    def due(self, gone: int, now: float, *, closing: bool) -> list[Key]:
        """Return the steps to look at: those with news, and now and then all."""
        sweep = closing or gone != self.swept[1] or now >= self.swept[0] + PATIENCE / 2
        keys = list(self.open if sweep else self.touched)
        if sweep:
            self.swept = (now, gone)
        self.touched.clear()
        return [key for key in keys if key in self.open]

    def judge(self, course: Course, records: tuple[Replica, ...], *, whole: bool) -> Iterator[Finding]:
        """Yield what is new in a step; what lasts is said once. A look at some ranks clears nothing."""
        if whole and records[0].count == 0:
            course.twins = twins(records)
        supposed = course.twins or course.agreed >= AGREED
        seen = Together(records=records, before=course.last, agreed=supposed)
        for kind, verdict in replicas.judge(seen):
            tell(course, kind, verdict)
            if verdict.finding is not None:
                if kind not in course.silent:
                    course.silent.add(kind)
                    yield since(course, verdict.finding)
            elif verdict.status == "ok" and whole:
                course.silent.discard(kind)
        if whole:
            course.last = records
            course.agreed = course.agreed + 1 if alike(records) else course.agreed if seen.agreed else 0


def since(course: Course, finding: Finding) -> Finding:
    """Say of replicas that parted since when it was to be expected, where their gradients told."""
    if finding.kind in CAUSES:
        course.cause = finding.step if course.cause is None else course.cause
    if finding.kind != replicas_diverged.KIND or course.cause is None or course.cause > finding.step:
        return finding
    message = f"{finding.message} (their gradients or scales differ since step {course.cause})"
    return replace(finding, first_step=course.cause, message=message)


def twins(records: tuple[Replica, ...]) -> bool:
    """Whether ranks that are supposed to be replicas began with the same parameters."""
    held = {(record.parameters, record.names) for record in records}
    return records[0].group.startswith(SUPPOSED) and len(held) == 1 and records[0].parameters != ""


def alike(records: tuple[Replica, ...]) -> bool:
    """Whether the ranks use the same gradients although their inputs differ: someone averaged them."""
    gradients = {(record.digest, record.names) for record in records}
    inputs = {record.inputs for record in records}
    return (
        len(gradients) == 1 and records[0].digest != "" and "" not in inputs and len(inputs) == len(records)
    )


def tell(course: Course, kind: str, verdict: Verdict) -> None:
    """Log why something can't be told, each reason once."""
    if verdict.status == "unknown" and (kind, verdict.reason) not in course.reasons:
        course.reasons.add((kind, verdict.reason))
        log.info("%s can't be told: %s (%s)", kind, verdict.message, verdict.reason)
