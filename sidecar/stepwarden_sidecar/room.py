"""What messages have room for: findings carry tracebacks, and there may be many. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stepwarden.wire import Finding, to_line
from stepwarden_sidecar.merge import Key

ROOM = 4 * 1024 * 1024  # bytes of findings in one report; the operator reads twice as much
KINDS = 100  # that are counted by their names: each is a series of the metrics
OTHER = "Other"
SENTENCE = 4096  # characters
CUT = {"cut": "there was no room for the evidence"}


def first(findings: Iterable[Finding], room: int) -> int:
    """Return how many findings, from the first, so many bytes have room for; one at least."""
    count = 0
    for finding in findings:
        room -= len(to_line(finding))
        if count and room < 0:
            break
        count += 1
    return count


def fitting(findings: Mapping[Key, Finding], sizes: Mapping[Key, int]) -> tuple[Finding, ...]:
    """Return all findings; where they are too large, the earliest without their evidence."""
    if sum(sizes.values()) <= ROOM:
        return tuple(findings.values())
    room, found = ROOM, []
    for key, finding in reversed(list(findings.items())):
        room -= sizes[key]
        found.append(finding if room >= 0 else brief(finding))
    return tuple(reversed(found))


def brief(finding: Finding) -> Finding:
    """Return a finding without its evidence."""
    names = (finding.module, finding.parameter, finding.op, finding.file, finding.label)
    module, parameter, op, file, label = (each and each[:SENTENCE] for each in names)
    return replace(
        finding,
        message=finding.message[:SENTENCE],
        ranks=finding.ranks[:SENTENCE],
        module=module,
        parameter=parameter,
        op=op,
        file=file,
        label=label,
        evidence=CUT,
    )
