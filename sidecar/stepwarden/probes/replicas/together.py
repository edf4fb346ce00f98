"""The same step on several ranks, and what its probes share: who agrees, who stands out, how it is said."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwarden.probes.naming import NAMED
from stepwarden.replica import Replica
from stepwarden.wire import Finding, Severity, Verdict

SUPPOSED = "?"  # begins the name of a group of which no rank knows that it is one
SHOWN = 16  # ranks whose numbers stand in the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """
    One step of one optimizer, as several ranks saw it, in the order of their numbers.

    `before` is the step before it. `agreed`: the ranks used the same gradients of different inputs for a
    while, or began with the same parameters beside some that are replicated, so they are replicas although
    no rank knows it.
    """

    records: tuple[Replica, ...]
    before: tuple[Replica, ...] = ()
    agreed: bool = False

    @property
    def known(self) -> bool:
        """Whether the ranks know that they are replicas."""
        groups = [record.group for record in self.records]
        return bool(groups) and all(group and not group.startswith(SUPPOSED) for group in groups)

    def incomparable(self) -> Verdict | None:
        """Return why these ranks can't be compared; None where they can."""
        if len(self.records) < 2:  # noqa: PLR2004 - what a comparison takes
            return unknown("OneRank", "no other rank has said anything of this step")
        if not self.known and not self.agreed:
            why = next((record.why for record in self.records if record.why), "")
            return unknown(
                "NotDataParallel", why or "no DistributedDataParallel holds the optimizer's parameters"
            )
        if len({record.names for record in self.records}) > 1:
            return unknown("DifferentParameters", "the ranks' optimizers hold different parameters by design")
        return None

    def pairs(self) -> list[tuple[Replica, Replica]]:
        """Return each rank's record of the step before with that of this step, where both are there."""
        earlier = {record.rank: record for record in self.before}
        return [
            (earlier[record.rank], record)
            for record in self.records
            if record.rank in earlier and earlier[record.rank].count == record.count - 1
        ]


def unknown(reason: str, message: str) -> Verdict:
    """Say that it can't be told."""
    return Verdict("unknown", reason, message)


def apart(one: float | None, other: float | None, tolerance: float) -> bool:
    """Whether two numbers differ by more than a part of the larger; a finite and a bad one do."""
    if one is None or other is None:
        return False
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) != math.isfinite(other)
    return abs(one - other) > tolerance * max(abs(one), abs(other))


def camps(records: Sequence[Replica], differ: Callable[[Replica, Replica], bool]) -> list[list[Replica]]:
    """Put ranks that agree together; the first of each is who the others are compared with."""
    found: list[list[Replica]] = []
    for record in records:
        for camp in found:
            if not differ(camp[0], record):
                camp.append(record)
                break
        else:
            found.append([record])
    return found


def standing_out(found: Sequence[Sequence[Replica]]) -> list[int]:
    """Return the ranks that are not with the majority; all of them where there is none."""
    largest = max(found, key=len)
    everyone = [record.rank for camp in found for record in camp]
    if 2 * len(largest) <= len(everyone):
        return sorted(everyone)
    majority = {record.rank for record in largest}
    return sorted(rank for rank in everyone if rank not in majority)


def values(records: Sequence[Replica], value: Callable[[Replica], object]) -> str:
    """Say a number of each rank, or of the first few: `1.5 on rank 0, 2 on rank 1`."""
    each = [f"{shown(value(record))} on rank {record.rank}" for record in records[:NAMED]]
    return ", ".join([*each, "..."] if len(records) > NAMED else each)


def shown(value: object) -> str:
    """Say one value."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def numbers(records: Sequence[Replica], value: Callable[[Replica], object]) -> dict[str, object]:
    """Return a value by rank, for the evidence."""
    return {str(record.rank): value(record) for record in records[:SHOWN]}


def bad(  # noqa: PLR0913 - one keyword for each thing that differs between kinds
    kind: str,
    reason: str,
    message: str,
    *,
    records: Sequence[Replica],
    ranks: Sequence[int],
    severity: Severity = "critical",
    evidence: Mapping[str, Any] | None = None,
) -> Verdict:
    """Make a verdict with its finding, at the step of these records."""
    guilty = [record for record in records if record.rank in ranks] or list(records)
    place = next((each for each in guilty if each.hint and each.file), None) or next(
        (each for each in guilty if each.file), guilty[0]
    )
    finding = Finding(
        kind=kind,
        severity=severity,
        step=max(record.step for record in records),
        rank=ranks[0] if len(ranks) == 1 else None,
        ranks=tuple(ranks),
        file=place.file,
        line=place.line,
        message=message,
        evidence={"replicas": len(records), "optimizer": records[0].optimizer} | dict(evidence or {}),
    )
    return Verdict("bad", reason, message, finding)
