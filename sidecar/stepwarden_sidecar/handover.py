"""
What passes from one hub to the next: the copy that standbys keep, and what is made of it. Opens no socket.

Every pod's sidecar keeps its own ranks' findings and tells a new hub all of them again. A copy therefore
holds what those can't tell: what was settled, what the hub's own ranks found last, all ranks as they were
heard last, and what the operator wants. Orders are not in it: every pod has them.
"""

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from stepwarden.attempt import until
from stepwarden.wire import Finding, Instruction, Orders, RankReport, from_dict, to_dict
from stepwarden_sidecar import election, room
from stepwarden_sidecar.inherited import Inherited
from stepwarden_sidecar.job import Job
from stepwarden_sidecar.pulses import Pulses
from stepwarden_sidecar.replicas import Replicas
from stepwarden_sidecar.sidecar import Sidecar

log = logging.getLogger(__name__)

AT_ONCE = 100  # settled findings in one copy
ROOM = 256 * 1024  # bytes of them; one at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a hub of this `boot` knows: of its settled findings, those after the ones that the reader has."""

    boot: str
    cursor: str
    published: int = 0  # settled findings so far, up to the last of `findings`
    instruction: Instruction = field(default_factory=Instruction)
    findings: tuple[Finding, ...] = ()
    pending: tuple[Finding, ...] = ()
    ranks: tuple[RankReport, ...] = ()

    def to_json(self) -> str:
        """Write it."""
        body = {"boot": self.boot, "cursor": self.cursor, "published": self.published}
        parts = {name: [to_dict(each) for each in getattr(self, name)] for name in LISTS}
        whole = body | parts | {"instruction": to_dict(self.instruction)}
        return json.dumps(whole, allow_nan=False, separators=(",", ":"))


LISTS: Mapping[str, type[Any]] = {"findings": Finding, "pending": Finding, "ranks": RankReport}


def read_copy(raw: str | bytes) -> Copy:
    """Read a copy. Raises `ValueError`."""
    try:
        body = json.loads(raw)
        return Copy(
            boot=str(body["boot"]),
            cursor=str(body["cursor"]),
            published=int(body["published"]),
            instruction=from_dict(Instruction, body["instruction"]),
            **{name: tuple(from_dict(cls, each) for each in body[name]) for name, cls in LISTS.items()},
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        message = f"not a copy of what a hub knows: {type(error).__name__}: {error}"
        raise ValueError(message) from error


def cursor(sidecar: Sidecar, job: Job) -> str:
    """Return a word that is another one once there is something to copy."""
    return f"{sidecar.version}-{sum(job.counts.values())}-{len(job.pending)}"


def copy_of(sidecar: Sidecar, job: Job, boot: str, after: int) -> Copy:
    """Copy what a reader lacks that knows the first `after` settled findings of that boot."""
    total = sum(job.counts.values())
    missing = total - after if boot == sidecar.boot and 0 <= after <= total else total
    missing = min(missing, len(job.settled))
    findings = fitting(tuple(islice(job.settled.values(), len(job.settled) - missing, None)))
    left = missing - len(findings)
    return Copy(
        boot=sidecar.boot,
        cursor=f"more-{left}" if left else cursor(sidecar, job),
        published=total - left,
        instruction=sidecar.instruction,
        findings=findings,
        pending=own_pending(sidecar, job),
        ranks=tuple(job.reports(sidecar.clock())),
    )


def fitting(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return as many of the findings, from the first, as one copy has room for."""
    return findings[: room.first(findings[:AT_ONCE], ROOM)]


def own_pending(sidecar: Sidecar, job: Job) -> tuple[Finding, ...]:
    """Return what the hub's own ranks found, and is not settled: if its pod goes, nobody else has it."""
    own = sidecar.ranks.known
    seen = (each for pending in job.pending.values() for each in pending.seen.values() if each.rank in own)
    return fitting(tuple(seen))


def inherit(sidecar: Sidecar, copy: Copy) -> None:
    """Keep a copy, on disk too: this sidecar may be the next hub."""
    known = sidecar.inherited
    sidecar.journal.append(known.take(copy.findings))
    known.ranks, known.pending, known.copied = copy.ranks, copy.pending, True
    if copy.instruction != sidecar.instruction:
        sidecar.instruction = copy.instruction
        sidecar.orders_file.save(sidecar.orders, sidecar.instruction)


def lead(sidecar: Sidecar) -> None:
    """Make this sidecar the hub, with all that it inherited."""
    now, limit = sidecar.clock(), sidecar.ranks.limit
    job = sidecar.job = Job(sidecar.settings.ranks, limit)
    sidecar.replicas = Replicas(limit)
    sidecar.pulses = Pulses(limit, sidecar.settings.ranks, sidecar.settings.probes)
    sidecar.boot = secrets.token_hex(4)  # so that all pods say again what they have
    known = sidecar.inherited
    settled = tuple(known.settled.values())
    job.restore(settled)
    job.causes.told = sidecar.orders.told
    sidecar.replicas.restore(settled)
    job.heard(known.ranks, now)
    job.found((*known.pending, *sidecar.findings.values()), now)
    sidecar.replicas.take(sidecar.unsent, now)
    sidecar.pulses.take(sidecar.beats.values(), now)
    sidecar.unsent.clear()
    sidecar.beats.clear()
    sidecar.instruction = wanted(sidecar.instruction if known.copied else None, sidecar.orders)
    known.copied = True
    sidecar.turn()


def wanted(copied: Instruction | None, orders: Orders) -> Instruction:
    """
    Return what the operator wants, by the copy and by the orders that were made of it.

    They may differ for a moment; then the ranks hold: the operator says it again, and a hold that is
    forgotten would cost more than one that lasts a second too long.
    """
    known = copied or Instruction(update=orders.update)
    newest = orders if until(orders) > until(known) else known
    return Instruction(
        hold=known.hold or orders.hold_at is not None,
        attempt=newest.attempt,
        acknowledged=newest.acknowledged,
        update=newest.update,
        save=max(known.save, orders.save),
    )


def step_down(sidecar: Sidecar) -> tuple[Finding, ...]:
    """Let another sidecar be the hub. Returns what was settled here, for that one to know."""
    job = sidecar.job
    if job is None:
        return ()
    sidecar.inherited = Inherited(settled=dict(job.settled), copied=False)
    sidecar.job = None
    sidecar.ordered.tell()
    sidecar.changed.tell()  # who waits for this hub's report has to ask another one
    return tuple(job.settled.values())


def standbys(sidecar: Sidecar) -> frozenset[int]:
    """Return the pods that are to keep a copy of what this hub knows."""
    return election.standbys(sidecar.pods, sidecar.settings.pod, sidecar.clock())
