"""RankFailed as all processes put it and read it: who is gone, who only followed, who lost a thread."""

from collections.abc import Mapping
from typing import Any

from stepwarden.wire import Finding

KIND = "RankFailed"


def rank_failed(  # noqa: PLR0913 - one keyword for each thing that differs between ways of failing
    rank: int,
    step: int,
    message: str,
    *,
    place: tuple[str | None, int | None],
    evidence: Mapping[str, Any],
    label: str | None = None,
) -> Finding:
    """Make the finding of a rank that failed by itself in a step; `place` is the user's file and line."""
    file, line = place
    return Finding(
        kind=KIND,
        severity="critical",
        step=step,
        rank=rank,
        ranks=(rank,),
        file=file,
        line=line,
        label=label,
        message=message,
        evidence=evidence,
    )


def is_crash(finding: Finding) -> bool:
    """Whether a rank is gone; of a thread that failed the rank lives on."""
    return finding.kind == KIND and finding.severity == "critical"


def is_consequence(finding: Finding) -> bool:
    """Whether a rank failed because another one had: there may be hundreds, and the cause says more."""
    return finding.kind == KIND and finding.severity == "info"
