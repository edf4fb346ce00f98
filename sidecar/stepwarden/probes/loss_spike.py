"""
LossSpike: the loss left its own history.

A curriculum's next stage, another task, a converged model's first hard batch, a restarted
schedule raise it too, and rarely above all that it ever was: only far beyond that is a warning.
"""

from collections.abc import Mapping

from stepwarden.probes.finding import finding
from stepwarden.probes.history import FAR, FLOOR, LAG, Course, together
from stepwarden.probes.observation import Observation
from stepwarden.wire import Severity, Verdict

KIND = "LossSpike"
NEEDS = Course
DEFAULTS: Mapping[str, float] = {
    "factor": 20.0,  # times the highest loss so far
    "together": 6.0,  # the same, where the gradient norm has risen by as much
    "recent": 5.0,  # times the highest of the last 100 steps: said as info
    "steps": 10.0,  # of history
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether the loss is beyond all that it was."""
    course = seen.record(Course)
    if course is None or course.loss.value is None or not abs(course.loss.value) < float("inf"):
        return Verdict("unknown", "NoLoss", "there is no finite loss")
    loss = course.loss
    if not loss.whole or not course.norm.whole:
        return Verdict("unknown", "HistoryCut", "a part of the steps before is missing")
    severity = risen(course, settings)
    if severity is not None:
        return spike(seen, course, severity)
    if loss.count < settings["steps"]:
        return Verdict("unknown", "NoHistory", f"{loss.count} steps are too few to compare with")
    return Verdict("ok", "WithinHistory", f"loss {loss.value:.6g}, the median before {loss.median:.6g}")


def risen(course: Course, settings: Mapping[str, float]) -> Severity | None:
    """Return how severe the loss's rise is; None where it is usual."""
    loss = course.loss
    if together(course, settings["together"], settings["steps"]):
        return "warning"
    if loss.value is None or loss.count < settings["steps"]:
        return None
    if loss.value >= FLOOR and loss.ratio >= settings["factor"] and loss.far >= FAR:
        return "warning"
    recent = max(map(abs, loss.before))
    return "info" if loss.value > settings["recent"] * recent and loss.far >= 2 * FAR else None


def spike(seen: Observation, course: Course, severity: Severity) -> Verdict:
    """Say that the loss left its history."""
    loss, norm = course.loss, course.norm
    rise = f", the gradient norm {norm.ratio:.3g} times ({norm.value:.3g})" if norm.ratio > 1 else ""
    message = (
        f"the loss is {loss.value:.4g}, {loss.ratio:.3g} times the highest up to {LAG} steps before "
        f"({loss.count} steps; median of the last {len(loss.before)}: {loss.median:.4g}){rise}: "
        "look at this batch and at the learning rate"
    )
    measured = {"highest": loss.highest, "median": loss.median, "deviations": loss.far}
    return Verdict(
        "bad", "LeftHistory", message, finding(seen, KIND, message, severity=severity, evidence=measured)
    )
