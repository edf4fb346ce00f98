"""
From what single ranks found to what the job found: pure.

After the reduction a NaN is on every rank, so each of them finds it. They are one finding;
what tells the rank that it began on is `evidence.local`: its own gradient was bad before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stepwarden.attempt import attempt_of
from stepwarden.policy import SEVERITIES
from stepwarden.wire import Finding

Key = tuple[str, int, int | None, int]
Own = Key  # of a rank's own word

OWN = frozenset({"RankFailed"})  # each rank fails its own way: its traceback must not be lost in another's


def key(finding: Finding) -> Key:
    """Return what two findings share that are the same one, seen by two ranks."""
    return own(finding) if finding.kind in OWN else (finding.kind, finding.step, None, attempt_of(finding))


def own(finding: Finding) -> Own:
    """
    Return what two words of one rank about the same finding share.

    A rank that torchrun has started again may find the same at the same step again, which is another finding;
    two processes that fail may both be of an attempt whose number nobody knows.
    """
    pid = finding.evidence.get("pid") if finding.kind in OWN else attempt_of(finding)
    return (finding.kind, finding.step, finding.rank, pid if isinstance(pid, int) else 0)


def merge(seen: Mapping[int, Finding], *, alone: bool) -> Finding:
    """
    Make one finding of what each rank (the mapping's key) says of it; `alone`: the job has one rank.

    The rank to blame is the lowest whose own part was bad, unless all were; without one, nobody but
    a rank that is alone, or that failed by itself. Module, parameter and message are its own.
    """
    blamed = blame(seen, alone=alone)
    speaker = min(seen) if blamed is None else blamed
    return replace(
        seen[speaker],
        rank=blamed,
        ranks=tuple(sorted({rank for each in seen.values() for rank in each.ranks} | set(seen))),
        severity=max((each.severity for each in seen.values()), key=SEVERITIES.index),
        first_step=earliest([each.first_step for each in seen.values()]),
    )


def blame(seen: Mapping[int, Finding], *, alone: bool) -> int | None:
    """
    Return the rank that a finding began on, or None where no single one is known.

    What was bad on every one of several ranks by itself, as a parameter that all have, began on none.
    """
    guilty = [
        rank for rank in sorted(seen) if seen[rank].evidence.get("local") is True or seen[rank].kind in OWN
    ]
    if guilty and (len(guilty) < len(seen) or len(seen) == 1):
        return guilty[0]
    return min(seen) if alone else None


def earliest(steps: Sequence[int | None]) -> int | None:
    """Return the earliest known step."""
    return min((step for step in steps if step is not None), default=None)
