"""GradientScaleWrong, as one process can know it: gradients are off by a loss scale."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Severity, Verdict

KIND = "GradientScaleWrong"
Fault = Literal["stepped", "added", "twice", "clipped", "tiny", "mixed", "never"]
FAULTS: tuple[Fault, ...] = ("stepped", "added", "twice", "clipped", "tiny", "mixed", "never")  # worst first


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """
    What was done with a loss scale before an update; `fault` is None where nothing was wrong.

    `scale` is the factor, `limit` what gradients were clipped to and `norm` their norm then, `steps` how
    many steps in a row showed it, `file` and `line` the call to look at, `others` what else was wrong.
    """

    fault: Fault | None = None
    scale: float | None = None
    limit: float | None = None
    norm: float | None = None
    steps: int = 1
    file: str | None = None
    line: int | None = None
    others: tuple[str, ...] = ()


NEEDS = Scaling
DEFAULTS: Mapping[str, float] = {}
CRITICAL = frozenset({"stepped", "added", "twice"})


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether gradients have the factor that they should have."""
    record = seen.record(Scaling)
    if record is None:
        return Verdict("unknown", "NotScaled", "no GradScaler is in use")
    if record.fault is None:
        return Verdict("ok", "Unscaled", f"gradients are unscaled, the loss scale is {number(record.scale)}")
    message = MESSAGES[record.fault](record)
    severity: Severity = "critical" if record.fault in CRITICAL else "warning"
    evidence = {
        "fault": record.fault,
        "scale": record.scale,
        "limit": record.limit,
        "norm": record.norm,
        "steps": record.steps,
        "others": list(record.others),
        "local": True,
    }
    found = finding(seen, KIND, message, severity=severity, evidence=evidence)
    if record.file is not None:
        found = replace(found, file=record.file, line=record.line)
    return Verdict("bad", record.fault.capitalize(), message, found)


def number(value: float | None) -> str:
    """Say a number, or that it isn't known."""
    return "unknown" if value is None else f"{value:.6g}"


def stepped(record: Scaling) -> str:
    """Say it of gradients that are used while they are scaled."""
    return (
        "the optimizer steps on gradients that are still multiplied by the loss scale "
        f"{number(record.scale)}: call scaler.step(optimizer) in place of optimizer.step(), or "
        "scaler.unscale_(optimizer) before it"
    )


def added(record: Scaling) -> str:
    """Say it of gradients that were added behind unscale_."""
    return (
        f"gradients multiplied by the loss scale {number(record.scale)} were added to gradients that "
        "scaler.unscale_ had already divided: call unscale_ behind the last backward of a step"
    )


def twice(record: Scaling) -> str:
    """Say it of a loss that was scaled twice."""
    return (
        f"the loss is multiplied by the loss scale {number(record.scale)} twice and divided by it once: "
        "scaler.scale was given what it had returned"
    )


def clipped(record: Scaling) -> str:
    """Say it of gradients that were clipped too early."""
    scale, limit, norm = record.scale, record.limit, record.norm
    real = limit / scale if scale and limit is not None else None
    enough = norm is not None and limit is not None and norm <= limit
    nothing = f" (their scaled norm {number(norm)} was within it this time)" if enough else ""
    return (
        f"gradients are clipped to {number(limit)} while still multiplied by the loss scale {number(scale)}, "
        f"which makes the limit {number(real)}{nothing}: call scaler.unscale_(optimizer) before clipping"
    )


def tiny(record: Scaling) -> str:
    """Say it of gradients that something clipped too early."""
    return (
        f"the gradient norm has been {number(record.norm)} for {record.steps} steps, which is "
        f"{number(record.limit)} divided by the loss scale {number(record.scale)}: gradients seem to be "
        "clipped before scaler.unscale_(optimizer) is called"
    )


def mixed(record: Scaling) -> str:
    """Say it of a sum of scaled and unscaled gradients."""
    return (
        "a scaled and an unscaled loss went backward into the same gradients, so the unscaled one counts "
        f"{number(record.scale)} times too little: give both to scaler.scale before backward"
    )


def never(record: Scaling) -> str:
    """Say it of gradients that are divided though they were not multiplied."""
    return (
        f"gradients are divided by the loss scale {number(record.scale)} though no loss of this step was "
        "multiplied by it: call scaler.scale(loss).backward()"
    )


MESSAGES = {
    "stepped": stepped,
    "added": added,
    "twice": twice,
    "clipped": clipped,
    "tiny": tiny,
    "mixed": mixed,
    "never": never,
}
