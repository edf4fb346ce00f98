"""A finding about one parameter, with the others that it is true of in the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Finding, Severity

SHOWN = 20  # names in the evidence: a finding has to fit into a datagram


def named(  # noqa: PLR0913 - one keyword for each thing that differs between kinds
    seen: Observation,
    kind: str,
    message: str,
    names: Sequence[str],
    *,
    severity: Severity = "warning",
    first_step: int | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Finding:
    """Make a finding whose place is the first of `names`; the others are evidence."""
    more = {"others": list(names[1:SHOWN])} | dict(evidence or {})
    found = finding(seen, kind, message, severity=severity, first_step=first_step, evidence=more)
    if not names:
        return found
    return replace(found, parameter=names[0], module=names[0].rpartition(".")[0] or None)


def some(names: Sequence[str], count: int) -> str:
    """Say the first name, and how many more there are of `count`."""
    first = names[0] if names else "a parameter that belongs to no module"
    return f"{first} and {count - 1} more" if count > 1 else first
