"""A local run's report: one HTML page that needs nothing but itself, from the sidecar's records."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from stepwarden.report import layers
from stepwarden.report.page import page
from stepwarden.report.records import read_findings, read_steps

__all__ = ["Facts", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a run as a whole. `started` is in seconds since the epoch."""

    title: str
    ranks: int
    started: float
    seconds: float
    exit_code: int
    ended_by: str
    restarts: int = 0


def write(folder: Path, facts: Facts) -> int:
    """Write `report.html` and `run.json` beside the records; return the number of findings."""
    findings = read_findings(folder / "findings.jsonl")
    steps = read_steps(folder / "steps.jsonl")
    (folder / "run.json").write_text(json.dumps(asdict(facts), indent=2) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(
        page(asdict(facts), findings, steps, layers.read(folder / "layers.jsonl")), encoding="utf-8"
    )
    return len(findings)
