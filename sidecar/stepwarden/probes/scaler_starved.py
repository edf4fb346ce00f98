"""ScalerStarved: the GradScaler has skipped many steps in a row, or its scale fell below one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "ScalerStarved"
NAN = "a smaller scale does not help against NaN: look for where it is born"
OVERFLOW = "gradients overflow at every scale: keep that part in float32, use bfloat16, or learn more slowly"
PATIENCE = 3  # times `skips` is what a warm-up gets
ROOM = 256.0  # a scale above it that still falls, before the first update, is a warm-up


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """
    How a scaler fares with one optimizer.

    `run` steps in a row were skipped, `total` of `of` in all; `scale` is the scale behind the last one,
    `first` what it began with, `falling` whether this step made it smaller. `parameter` holds
    `nan` NaN and `inf` Inf in its gradient, `file` and `line` are the call of `scaler.step`.
    """

    run: int
    total: int
    of: int
    scale: float
    first: float
    falling: bool
    parameter: str | None = None
    nan: int | None = None
    inf: int | None = None
    file: str | None = None
    line: int | None = None


NEEDS = Skips
DEFAULTS: Mapping[str, float] = {"skips": 20, "scale": 1.0}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """
    Say whether updates still happen.

    A scaler that begins high skips until its scale fits, which is healthy: 2**24 needs ten to sixteen
    steps. Before the first update a scale that still falls and is high gets more than `skips`.
    """
    record = seen.record(Skips)
    if record is None:
        return Verdict("unknown", "NotScaled", "no GradScaler is in use")
    many = record.run >= settings["skips"] and not warming(record, PATIENCE * settings["skips"])
    low = record.scale < settings["scale"] <= record.first
    if not (many or low):
        return Verdict(
            "ok", "Steps", f"{record.run} steps in a row skipped, the loss scale is {record.scale:.6g}"
        )
    message = said(record, many=many)
    evidence = {
        "skipped_in_a_row": record.run,
        "skipped": record.total,
        "of": record.of,
        "scale": record.scale,
        "first_scale": record.first,
        "nan": record.nan,
        "inf": record.inf,
        "local": True,
    }
    found = finding(seen, KIND, message, severity="warning", evidence=evidence)
    module = (record.parameter or "").rpartition(".")[0] or None
    found = replace(found, parameter=record.parameter, module=module, file=record.file, line=record.line)
    return Verdict("bad", "Skipped" if many else "ScaleLow", message, found)


def warming(record: Skips, most: float) -> bool:
    """Whether a scaler is still on its way down from where it began."""
    return record.run == record.of < most and record.falling and record.scale > ROOM


def said(record: Skips, *, many: bool) -> str:
    """Say what starves, and what to look at."""
    what = (
        f"the GradScaler skipped the last {record.run} steps, its scale is {record.scale:.6g}"
        if many
        else f"the GradScaler's scale fell from {record.first:.6g} to {record.scale:.6g}, below one, after "
        f"{record.total} of {record.of} steps were skipped"
    )
    counted = [f"{count} {name}" for count, name in ((record.nan, "NaN"), (record.inf, "Inf")) if count]
    where = f"; the gradient of {record.parameter or 'a parameter'} holds " if counted else ""
    return f"{what}{where}{' and '.join(counted)}; {NAN if record.nan else OVERFLOW}"
