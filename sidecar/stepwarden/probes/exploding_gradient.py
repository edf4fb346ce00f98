"""
ExplodingGradient: a gradient norm left its own history by a wide margin, or passed an absolute limit.

The limit is that of adapters, whose gradients are small by construction: past 1e4 a massive
activation of the frozen model drives them (huggingface/peft#3073). That update is surely poisoned.
"""

from collections.abc import Mapping
from dataclasses import replace

from stepwarden.probes.finding import finding
from stepwarden.probes.history import FAR, FLOOR, LAG, Course, Peak, together
from stepwarden.probes.observation import Observation
from stepwarden.wire import Finding, Severity, Verdict

KIND = "ExplodingGradient"
NEEDS = Course
DEFAULTS: Mapping[str, float] = {
    "limit": 1e4,  # of an adapter's gradient norm
    "limit_all": 1e30,  # of any parameter's
    "factor": 50.0,  # times the highest norm so far
    "together": 6.0,  # the same, where the loss has risen by as much
    "steps": 10.0,  # of history
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether the gradients are beyond a limit, or beyond all that they were."""
    course = seen.record(Course)
    if course is None or course.norm.value is None or not course.norm.value < float("inf"):
        return Verdict("unknown", "NoNorm", "there is no finite gradient norm")
    beyond = past(course, settings)
    if beyond is not None:
        return absolute(seen, *beyond)
    norm = course.norm
    if not norm.whole or not course.loss.whole:
        return Verdict("unknown", "HistoryCut", "a part of the steps before is missing")
    alone = norm.ratio >= settings["factor"] and norm.value >= FLOOR and norm.far >= FAR  # type: ignore[operator]  # seen above
    if (alone and norm.count >= settings["steps"]) or together(
        course, settings["together"], settings["steps"]
    ):
        return historic(seen, course)
    if norm.count < settings["steps"]:
        return Verdict("unknown", "NoHistory", f"{norm.count} steps are too few to compare with")
    return Verdict("ok", "WithinHistory", f"gradient norm {norm.value:.3g}, up to {norm.highest:.3g} before")


def past(course: Course, settings: Mapping[str, float]) -> tuple[Peak, float] | None:
    """Return what is past its absolute limit, and the limit."""
    if course.adapter is not None and course.adapter.norm > settings["limit"]:
        return course.adapter, settings["limit"]
    if course.peak is not None and course.peak.norm > settings["limit_all"]:
        return course.peak, settings["limit_all"]
    return None


def absolute(seen: Observation, peak: Peak, limit: float) -> Verdict:
    """Say that a parameter's gradient is past its limit."""
    name = peak.name or "a parameter that belongs to no module"
    message = (
        f"the gradient norm of {name} is {peak.norm:.3g}, past the limit of {limit:.3g}{usual(seen)}: look "
        "for a huge activation or a new kind of input in this batch, lower the adapter's scale, or clip"
    )
    return Verdict("bad", "PastLimit", message, at(seen, peak, message, "critical", {"limit": limit}))


def historic(seen: Observation, course: Course) -> Verdict:
    """Say that the gradients are far beyond what they were."""
    norm, loss = course.norm, course.loss
    where = f", most of it in {course.peak.name} ({course.peak.norm:.3g})" if course.peak else ""
    rise = f", the loss {loss.ratio:.3g} times ({loss.value:.4g})" if loss.ratio > 1 else ""
    message = (
        f"the gradient norm is {norm.value:.3g}{where}, {norm.ratio:.3g} times the highest up to "
        f"{LAG} steps before ({norm.count} steps){rise}: look at this batch and at the learning rate, "
        "and clip the gradients"
    )
    measured = {"highest": norm.highest, "median": norm.median, "deviations": norm.far}
    return Verdict("bad", "LeftHistory", message, at(seen, course.peak, message, "warning", measured))


def usual(seen: Observation) -> str:
    """Say what the norm over all parameters was."""
    return f" ({seen.norms[-1]:.3g} over all parameters in the step before)" if seen.norms else ""


def at(
    seen: Observation, peak: Peak | None, message: str, severity: Severity, measured: Mapping[str, float]
) -> Finding:
    """Make the finding at the worst parameter."""
    name = peak.name if peak else None
    found = finding(seen, KIND, message, severity=severity, evidence=dict(measured))
    return replace(found, parameter=name, module=(name.rpartition(".")[0] or None) if name else None)
