"""
Which rank's failure is the cause, and whose are its consequences: pure.

Once a rank is gone its peers fail in the collective that they share with it, some of them sooner than anybody
knows of the first. What failed first is told by the order of arrival at the hub: machines' clocks differ.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from stepwarden.probes.ranks.hung_words import have_ended
from stepwarden.wire import Finding, Orders, to_line

WAIT = 3.0  # seconds that the failure of a rank which lost its peer waits for that peer's
ENDED = 4.0  # and where a rank has ended by its own word: its exit code is known once its process is gone
TOLD = 4  # findings that ranks are told: the first cause, and the last of the others
ROOM = 96 * 1024  # bytes of orders, which go into one datagram
CUTS = (16 * 1024, 8 * 1024, 4 * 1024, 1024, 256, 0)  # characters of one string of evidence, tried in turn
BRIEF = 1024  # characters of a consequence's traceback
FAILED, HUNG = "RankFailed", "RankHung"
TIMED_OUT = re.compile(r"\btim(ed|ing) ?out\b|\btime-?out\b", re.IGNORECASE)


class Causes:
    """The failures that ranks are told of, oldest first: what is open of the job's present attempt."""

    def __init__(self) -> None:
        self.told: tuple[Finding, ...] = ()

    @property
    def first(self) -> Finding | None:
        """The cause of what fails from here on."""
        return next((each for each in self.told if is_cause(each)), None)

    def judge(self, finding: Finding, *, late: bool, ended: Sequence[int] = ()) -> Finding | None:
        """
        Return a finding as it is published; None: its cause is waited for. `ended`: ranks that ended well.

        `evidence.local` of a failure is True where it began in its own rank, False where a peer was lost,
        and absent where nobody knows, as with SIGKILL: then it is a consequence only of an earlier cause.
        """
        local = finding.evidence.get("local")
        if finding.kind != FAILED or finding.severity != "critical" or local is True:
            return finding
        cause = self.first or self.named(finding)
        if cause is not None and cause.rank != finding.rank:
            return consequence(finding, cause)
        if local is None:
            return finding
        return left_behind(finding, ended) if late else None

    def named(self, finding: Finding) -> Finding | None:
        """Return what a rank was told, and ended for: it was freed from a collective by that."""
        because = finding.evidence.get("because")
        return next((each for each in self.told if because is not None and each.rank == because), None)

    def published(self, findings: Iterable[Finding]) -> None:
        """Take in what was published: failures that are no consequences, and hangs, are told."""
        new = [each for each in findings if each.kind in {FAILED, HUNG} and each.severity != "info"]
        if not new:
            return
        told = (*self.told, *new)
        kept = (*told[:1], *told[1:][-(TOLD - 1) :])
        self.told = fitting(kept)

    def over(self, hang: Finding) -> None:
        """Forget a hang that has ended by itself: what fails later does not fail for it."""
        self.told = tuple(each for each in self.told if (each.kind, each.step) != (HUNG, hang.step))

    def restarted(self) -> None:
        """Forget them: a rank that was gone is back, and what ended the attempt before is no news to it."""
        self.told = ()


def is_cause(finding: Finding) -> bool:
    """Whether a finding explains why other ranks fail."""
    return finding.severity == "critical" and finding.evidence.get("local") is not False


def left_behind(finding: Finding, ended: Sequence[int]) -> Finding:
    """Say of a rank that lost its peers which of them had ended, without a fault of their own."""
    if not ended:
        return finding
    message = f"{finding.message}; {have_ended(ended, ' before')}"
    return replace(finding, message=message, evidence={**finding.evidence, "ended": list(ended)})


def timed_out(finding: Finding) -> bool:
    """Whether a rank failed as it had waited for another one for as long as its collectives may take."""
    lost = finding.kind == FAILED and finding.evidence.get("local") is False
    return lost and bool(TIMED_OUT.search(finding.message))


def consequence(finding: Finding, cause: Finding) -> Finding:
    """Put a failure as what follows from another one."""
    who = "another rank" if cause.rank is None else f"rank {cause.rank}"
    how = "hangs" if cause.kind == HUNG else "failed"
    return replace(
        finding,
        severity="info",
        message=f"{finding.message}, because {who} {how}",
        evidence={**cut(finding.evidence, BRIEF), "because": cause.rank},
    )


def fitting(told: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Cut what findings carry until orders with them fit into a datagram."""
    for longest in CUTS:
        shorter = tuple(
            replace(each, message=each.message[: longest or BRIEF], evidence=cut(each.evidence, longest))
            for each in told
        )
        if len(to_line(Orders(told=shorter))) <= ROOM:
            return shorter
    return tuple(replace(each, message=each.message[:BRIEF], evidence={}) for each in told)


def cut(value: Any, longest: int) -> Any:
    """Keep the end of each string, which says most of a traceback, and of each list its first items."""
    if isinstance(value, str):
        return value[max(0, len(value) - longest) :]
    if isinstance(value, dict):
        return {key: cut(item, longest) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cut(item, longest) for item in value[: max(1, longest // 64)]]
    return value
