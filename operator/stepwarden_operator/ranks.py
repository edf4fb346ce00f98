"""What the hub says of the ranks, as a status has it. Pure."""

from typing import Any

from stepwarden.encoding import plain
from stepwarden.wire import JobReport, RankReport
from stepwarden_operator.conditions import live
from stepwarden_operator.observe import Observed


def count(observed: Observed, ended: str | None, *, suspended: bool) -> dict[str, Any]:
    """Count the ranks by state. Where the hub hasn't spoken yet, what was known stays."""
    total = observed.job.ranks
    if ended or suspended or not live(observed.pods):
        return gone(observed, ended)
    if observed.report is None and observed.job.status.get("ranks"):
        return dict(observed.job.status["ranks"])
    states = [rank.state for rank in observed.report.ranks] if observed.report else []
    well = sum(state != "failed" for state in states)
    return {
        "total": total,
        "running": states.count("running"),
        "held": states.count("held"),
        "failed": states.count("failed"),
        "ready": f"{well}/{total}",
    }


def gone(observed: Observed, ended: str | None) -> dict[str, Any]:
    """Count the ranks of a job without pods that run."""
    total = observed.job.ranks
    failed = (observed.job.status.get("ranks") or {}).get("failed", 0)
    return {
        "total": total,
        "running": 0,
        "held": 0,
        "failed": max(failed, 1) if ended == "Failed" else 0,
        "ready": f"{total if ended == 'Complete' else 0}/{total}",
    }


def held(observed: Observed, *, paused: bool) -> bool:
    """
    Whether the ranks stand still.

    Under a pause one held rank is enough: the others can't pass the next collective.
    While the hub says nothing (the operator or a sidecar has just started), it stays as it was.
    """
    was = observed.job.status.get("phase") == "Held"
    report = observed.report
    states = [rank.state for rank in report.ranks if rank.state in ("running", "held")] if report else []
    if not states:
        return was and bool(live(observed.pods))
    if "held" not in states:
        return False
    return paused or ("running" not in states and (was or len(states) >= observed.job.ranks))


def progress(observed: Observed) -> dict[str, Any] | None:
    """Return how far the job has come, as its ranks say; None where they don't."""
    report = observed.report
    if report is None or not any(rank.step >= 0 for rank in report.ranks):
        return None
    speeds = [rank.steps_per_second for rank in report.ranks if rank.steps_per_second is not None]
    found: dict[str, Any] = {"step": max(rank.step for rank in report.ranks)}
    if speeds:
        found["stepsPerSecond"] = figures(min(speeds))
    if (lead := leader(report)) is not None:
        found["loss"] = figures(lead)
    return found


def leader(report: JobReport) -> float | None:
    """Return the loss of the lowest rank that has one."""

    def rank_number(rank: RankReport) -> int:
        return rank.rank

    return next((r.loss for r in sorted(report.ranks, key=rank_number) if r.loss is not None), None)


def figures(value: float) -> Any:
    """Round to what a person reads; what JSON has no number for becomes a string."""
    return plain(float(f"{value:.4g}"))
