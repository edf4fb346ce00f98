"""Puts findings, curves and facts into the page. All that came from the run is escaped by the template."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from stepwarden.encoding import plain
from stepwarden.report.curves import HEIGHT, WIDTH, Chart, chart
from stepwarden.report.layers import Layer
from stepwarden.wire import Finding, StepTaken

MOST = 200  # findings that the table shows
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#0891b2", "#be185d", "#4d7c0f", "#475569")


def page(
    facts: Mapping[str, Any],
    findings: Sequence[Finding],
    steps: Mapping[int, Sequence[StepTaken]],
    layers: Sequence[Layer] = (),
) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("stepwarden.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"evidence": evidence, "colour": colour, "short": short, "norm": norm}
    return environment.get_template("report.html.j2").render(
        facts=facts,
        started=datetime.fromtimestamp(facts["started"], timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        findings=findings[:MOST],
        more=max(0, len(findings) - MOST),
        charts=charts(findings, steps),
        layers=layers,
        ranks=list(steps),
        last_step=max((step.step for taken in steps.values() for step in taken[-1:]), default=None),
        width=WIDTH,
        height=HEIGHT,
    )


def charts(findings: Sequence[Finding], steps: Mapping[int, Sequence[StepTaken]]) -> list[Chart]:
    """Draw what is known of the run's course."""
    marks = [finding.step for finding in findings]
    loss = {rank: [(step.step, step.loss) for step in taken] for rank, taken in steps.items()}
    norm = {rank: [(step.step, step.gradient_norm) for step in taken] for rank, taken in steps.items()}
    drawn = [chart("Loss", loss, marks), chart("Gradient norm", norm, marks)]
    return [each for each in drawn if each is not None]


def evidence(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Put a finding's evidence as names and texts."""
    return [(name, told(value)) for name, value in found.items()]


def told(value: Any) -> str:
    """Write one value of the evidence: a text as it is (a traceback has lines), the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(rounded(plain(value)))


def rounded(value: Any) -> Any:
    """Round the numbers in a value to what a person reads; findings.jsonl has them whole."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value


def norm(value: float | None) -> str:
    """Write a gradient norm."""
    return "none" if value is None else f"{value:.3g}"


def colour(rank: int) -> str:
    """Return a rank's colour."""
    return COLOURS[rank % len(COLOURS)]


def short(seconds: float) -> str:
    """Write how long a run took."""
    minutes, rest = divmod(seconds, 60)
    return f"{seconds:.1f} s" if minutes < 1 else f"{int(minutes)} min {rest:.0f} s"
