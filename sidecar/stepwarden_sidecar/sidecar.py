"""
The sidecar's one state, and what each event does to it. Opens no socket: those who do call in here.

Everything ends in `turn`, which brings the outside in line with the state: findings that are
settled get published, orders are made and told, those who wait for a change are woken.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from stepwarden.pulse import Pulse
from stepwarden.replica import Replica
from stepwarden.wire import (
    Finding,
    Instruction,
    JobReport,
    Message,
    Note,
    Orders,
    PodReport,
    RankState,
    StepTaken,
)
from stepwarden_sidecar import agreement, holding
from stepwarden_sidecar.changes import Changes
from stepwarden_sidecar.inherited import Inherited
from stepwarden_sidecar.job import KEPT, Job
from stepwarden_sidecar.merge import Own, own
from stepwarden_sidecar.pulses import Pulses
from stepwarden_sidecar.ranks import Rank, Ranks
from stepwarden_sidecar.replicas import ROOM, Replicas
from stepwarden_sidecar.settings import MAX_RANKS, Settings
from stepwarden_sidecar.store import Journal, OrdersFile

if TYPE_CHECKING:
    from stepwarden_sidecar.election import Election

log = logging.getLogger(__name__)

OF_RANKS = (Finding, StepTaken, Replica, Pulse, RankState, Note)
FEW = 64  # ranks, of which a look at all costs next to nothing
AGAIN = 1.0  # seconds after which orders are said again


class Sidecar:
    """What one sidecar knows. `job` is None where another one is the hub."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings, self.clock = settings, clock
        limit = settings.ranks or MAX_RANKS
        self.ranks = Ranks(limit)
        self.job = None if settings.hub or settings.candidates else Job(settings.ranks, limit)
        self.election: Election | None = None  # where other pods may be the hub as well
        self.pods: dict[int, float] = {}  # when each was heard
        self.replicas = Replicas(limit)
        self.pulses = Pulses(limit, settings.ranks, settings.probes)
        self.beats: dict[int, Pulse] = {}  # the last of each rank that another pod's hub has not been told
        self.unsent: deque[Replica] = deque(maxlen=ROOM)  # that another pod's hub has not been told
        self.inherited = Inherited()
        self.findings: dict[Own, Finding] = {}  # of its own ranks, as they said them
        self.orders, self.instruction = Orders(), Instruction()
        self.malformed = 0
        self.closing = False
        self.boot, self.revision = secrets.token_hex(4), 0
        self.shape: object = None
        self.told: dict[tuple[int, int], tuple[Orders, float]] = {}  # rank and pid: what, and when
        self.tell: Callable[[int, Orders], bool] = lambda _rank, _orders: False
        self.changed, self.ordered = Changes(), Changes()  # the job's version, or its orders; orders alone
        self.stirred = Changes()  # there is something to turn for, soon
        self.views = Changes()  # for the election: another pod has told its view
        self.news, self.urgent = Changes(), Changes()  # for the link: anything; more than a healthy step
        state = settings.directory / "state"
        self.own_journal, self.journal = (
            Journal(state / "findings.jsonl", KEPT),
            Journal(state / "job.jsonl", KEPT),
        )
        self.orders_file = OrdersFile(state / "orders.json")
        report = settings.report
        self.report_journal = Journal(report / "findings.jsonl") if report and self.job else None
        self.steps = Journal(report / "steps.jsonl") if report else None

    def restore(self) -> None:
        """Make its folders, and know again what it knew before it ended. Raises `OSError`."""
        self.own_journal.path.parent.mkdir(exist_ok=True)
        if self.settings.report:
            self.settings.report.mkdir(parents=True, exist_ok=True)
        self.orders, self.instruction = self.orders_file.load()
        self.findings = {own(each): each for each in self.own_journal.load()[-KEPT:]}
        settled = self.journal.load() if not self.settings.hub else []
        self.inherited.take(settled)
        if not self.job:
            return
        self.job.restore(settled)
        self.job.causes.told = self.orders.told
        self.replicas.restore(settled)
        if self.report_journal and settled:
            written = set(map(own, self.report_journal.load()))
            self.report_journal.append(each for each in settled if own(each) not in written)
        self.job.found(self.findings.values(), self.clock())
        if self.findings or settled:
            log.info(
                "restored %d findings; acknowledged up to step %d", len(settled), self.orders.acknowledged
            )

    def garbled(self) -> None:
        """Count something that was no message."""
        self.malformed += 1

    def take(self, messages: Iterable[Message]) -> None:
        """Take in what the pod's ranks said."""
        now, findings, steps, replicas, states = self.clock(), [], [], [], False
        for message in messages:
            if not isinstance(message, OF_RANKS) or not self.ranks.valid(message.rank):
                self.garbled()
            elif isinstance(message, Note):
                self.note(message)
            elif isinstance(message, Replica):
                replicas.append(message)
            elif isinstance(message, Pulse):
                self.beat(message, now)
            elif isinstance(message, Finding):
                findings.append(message)
            elif isinstance(message, StepTaken):
                steps.append(message)
                self.ranks.stepped(message, now)
            else:
                states |= self.said(message, now)
        if self.steps:
            self.steps.append(steps)
        self.found(findings, now)
        self.compare(replicas, now)
        self.turn()
        self.news.tell()
        if findings or states or any(step.agree for step in steps):
            self.urgent.tell()

    def gone(self, rank: Rank, finding: Finding | None) -> None:
        """Take in that a rank's process is gone without last words: it failed, or was asked to end."""
        rank.state, rank.reason = ("failed", finding.message) if finding else ("ended", "")
        log.info("rank %d is gone at step %d: %s", rank.rank, rank.step, rank.reason or "it was asked to end")
        self.found([finding] if finding else [], self.clock())
        self.turn()
        self.news.tell()
        self.urgent.tell()

    def note(self, note: Note) -> None:
        """Write down what is for the report alone."""
        if self.settings.report:
            Journal(self.settings.report / f"{note.topic}.jsonl").append([note])

    def said(self, message: RankState, now: float) -> bool:
        """Take in a rank's state; True where it is another one than before."""
        before = self.ranks.known.get(message.rank)
        state = before.state if before else None
        self.ranks.said(message, now)
        known = self.ranks.known[message.rank]
        if before is not None and before is not known:
            known.before = frozenset(map(own, self.orders.told))
        if state != known.state:
            reason = f": {message.reason}" if message.reason else ""
            log.info("rank %d is %s at step %d%s", message.rank, message.state, message.step, reason)
        return state != known.state

    def found(self, findings: Iterable[Finding], now: float) -> None:
        """Take in what the pod's ranks found; what is known already is passed over."""
        new = {own(each): each for each in map(self.ranks.stamped, findings)}
        new = {key: finding for key, finding in new.items() if key not in self.findings}
        self.findings |= new
        while len(self.findings) > KEPT:
            del self.findings[next(iter(self.findings))]
        self.own_journal.append(new.values())
        if self.job:
            self.job.found(new.values(), now)

    def compare(self, records: Iterable[Replica], now: float) -> None:
        """Take in what ranks say of themselves as replicas, or keep it for the hub."""
        if self.job:
            self.replicas.take(records, now)
        else:
            self.unsent.extend(records)

    def beat(self, pulse: Pulse, now: float) -> None:
        """Take in what a rank is at, or keep it for the hub."""
        self.ranks.beat(pulse, now)
        if self.job:
            self.pulses.take([pulse], now)
        else:
            self.beats[pulse.rank] = pulse

    def turn(self) -> None:
        """Bring everything outside in line with the state; doing it again changes nothing."""
        now = self.clock()
        if self.job:
            self.turn_job(self.job, now)
        for rank in self.ranks:
            self.tell_rank(rank, now)

    def turn_job(self, job: Job, now: float) -> None:
        """Do the hub's part: publish what is settled, make orders, and count the version."""
        job.heard((rank.report(self.settings.pod, now) for rank in self.ranks), now)
        self.publish(job.settle(float("inf") if self.closing else now))
        self.publish(job.compared(self.replicas.compare(job.gone, now, closing=self.closing)))
        self.publish(job.compared(self.pulses.look(job.ranks, now, job.gave_up)))
        while self.pulses.over:
            job.causes.over(self.pulses.over.pop())
        orders = holding.decide(self.orders, self.instruction, job.views(), now, anew=job.begun_anew())
        orders = replace(orders, told=job.causes.told)
        self.order(agreement.agree(orders, job.reports(now), job.unsound, job.expected))
        shape = (job.shape(now), replace(self.orders, agreed=-1))
        if shape != self.shape:
            self.shape, self.revision = shape, self.revision + 1
            self.changed.tell()

    def publish(self, findings: list[Finding]) -> None:
        """Write down findings of the job, once."""
        self.journal.append(findings)
        if self.report_journal:
            self.report_journal.append(findings)
        for finding in findings:
            log.info("%s at step %d: %s", finding.kind, finding.step, finding.message)

    def order(self, orders: Orders) -> None:
        """Make these the pod's orders."""
        if orders == self.orders:
            return
        if replace(orders, agreed=self.orders.agreed) != self.orders:
            told = "; ".join(each.message for each in orders.told)
            log.info("orders: %s%s", replace(orders, told=()), f", told: {told}" if told else "")
            self.orders_file.save(orders, self.instruction)
        self.orders = orders
        self.ordered.tell()
        self.changed.tell()

    def tell_rank(self, rank: Rank, now: float) -> None:
        """Say its orders to a rank that doesn't know them yet, and again each second."""
        name = (rank.rank, rank.pid)
        orders, when = self.told.get(name, (None, 0.0))
        news = tuple(each for each in self.orders.told if own(each) not in rank.before)
        wanted = replace(self.orders, told=news)
        due = orders != wanted or now >= when + AGAIN
        if due and rank.state != "ended" and not rank.dead and self.tell(rank.rank, wanted):
            self.told = {each: what for each, what in self.told.items() if each[0] != rank.rank}
            self.told[name] = (wanted, now)

    def instruct(self, instruction: Instruction) -> None:
        """Take in what the operator wants; what it wants again changes nothing."""
        if instruction != self.instruction:
            self.instruction = instruction
            self.orders_file.save(self.orders, instruction)
        self.turn()

    def pod_reported(self, report: PodReport) -> None:
        """Take in what another pod's sidecar knows."""
        if self.job:
            now = self.clock()
            if 0 <= report.pod < MAX_RANKS:
                self.pods[report.pod] = now
            self.job.heard(report.ranks, now)
            self.job.found(report.findings, now)
            self.compare(report.replicas, now)
            self.pulses.take(report.pulses, now)
            if len(self.job.ranks) > FEW:
                self.stirred.tell()  # a turn looks at all ranks: not for each of many reports
            else:
                self.turn()

    @property
    def version(self) -> str:
        """The job report's version."""
        return f"{self.boot}-{self.revision}"

    def job_report(self, job: Job) -> JobReport:
        """Return what the hub knows."""
        return job.report(self.version, self.orders, self.clock())

    def close(self) -> None:
        """Publish what is still open, and let go of all who wait."""
        self.closing = True
        self.turn()
        self.ordered.tell()
        self.changed.tell()
