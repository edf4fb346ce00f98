"""How a probe makes a finding of an observation: the fields that all of them share."""

from collections.abc import Mapping
from typing import Any

from stepwarden.probes.observation import NonFinite, Observation
from stepwarden.wire import Finding, Severity

SHOWN = 5  # gradient norms of the steps before, in the evidence


def finding(  # noqa: PLR0913 - one keyword for each thing that differs between kinds
    seen: Observation,
    kind: str,
    message: str,
    *,
    severity: Severity = "critical",
    bad: NonFinite | None = None,
    first_step: int | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Finding:
    """Make a finding of this rank, with the bad tensor's names and the numbers of the step."""
    name = bad.name if bad else None
    return Finding(
        kind=kind,
        severity=severity,
        step=seen.step,
        first_step=first_step,
        rank=seen.rank,
        ranks=(seen.rank,),
        module=(name.rpartition(".")[0] or None) if name else None,
        parameter=name,
        file=seen.file,
        line=seen.line,
        message=message,
        evidence=numbers(seen, bad) | dict(evidence or {}),
    )


def numbers(seen: Observation, bad: NonFinite | None) -> dict[str, Any]:
    """Put what was measured as plain values."""
    measured: dict[str, Any] = {
        "loss": seen.loss,
        "gradient_norm": seen.gradient_norm,
        "gradient_norms_before": list(seen.norms[-SHOWN:]),
        "local": seen.local,
        "late": seen.late,
    }
    if bad:
        measured |= {"nan": bad.nan, "inf": bad.inf, "size": bad.size, "tensors": bad.tensors, "of": bad.of}
    return measured
