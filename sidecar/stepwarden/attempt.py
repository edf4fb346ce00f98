"""
Which attempt a finding is of: pure.

torchrun starts ranks again within their pod (`--max-restarts`), and each attempt counts its steps from 0.
What was dealt with in one attempt is not dealt with in the next, so moments are ordered by attempt first.
"""

from dataclasses import replace

from stepwarden.wire import Finding, Instruction, Orders

MOST = 2**31  # attempts: a pod that says more is not believed
EVIDENCE = "attempt"

Moment = tuple[int, int]  # attempt and step
NEVER: Moment = (0, -1)


def attempt_of(finding: Finding) -> int:
    """Return the attempt that a finding is of, 0 for the first."""
    said = finding.evidence.get(EVIDENCE, 0)
    return said if type(said) is int and 0 <= said < MOST else 0


def moment(finding: Finding) -> Moment:
    """Return when a finding was, in the order in which findings are dealt with."""
    return attempt_of(finding), finding.step


def until(said: Orders | Instruction) -> Moment:
    """Return the last moment whose findings are dealt with."""
    return said.attempt, said.acknowledged


def stamped(finding: Finding, attempt: int) -> Finding:
    """Say in a finding's evidence which attempt it is of, where it doesn't yet; of the first, nothing."""
    if not attempt or EVIDENCE in finding.evidence:
        return finding
    return replace(finding, evidence={**finding.evidence, EVIDENCE: attempt})
