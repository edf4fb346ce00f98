"""GradientTruncated: a trainable parameter gets no gradient because the graph was cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepwarden.probes import cut
from stepwarden.probes.finding import finding
from stepwarden.wire import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwarden.probes.cut import Cut, Why
    from stepwarden.probes.observation import Observation
    from stepwarden.probes.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """
    A recorded step, and the parameters of the optimizer that have no gradient in it.

    `trained` counts those that have one. `why` says why it can't be told where the others lost theirs.
    `optional` holds lines (file, line) at which the source has a choice.
    """

    trace: Trace
    suspects: tuple[str, ...]
    trained: int
    why: str | None = None
    optional: frozenset[tuple[str | None, int | None]] = frozenset()


KIND = "GradientTruncated"
NEEDS = Truncation
DEFAULTS: Mapping[str, float] = {}
SHOWN = 20  # parameters named in the evidence
OTHERS = 5  # places named in the evidence


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether a parameter whose value reaches the loss gets no gradient."""
    record = seen.record(Truncation)
    if record is None:
        return Verdict(
            "unknown", "NotRecorded", "only the first step is recorded, and where a gradient is lost"
        )
    if not record.suspects:
        return Verdict("ok", "AllReached", f"all {record.trained} parameters have gradients")
    if record.why is not None:
        return Verdict("unknown", "NotRecorded", record.why)
    cuts = cut.find(record.trace, frozenset(record.suspects))
    if not cuts:
        return Verdict(
            "ok", "Unused", f"{len(record.suspects)} parameters have no gradient, and no loss uses them"
        )
    return bad(seen, record, cuts)


def bad(seen: Observation, record: Truncation, cuts: list[Cut]) -> Verdict:
    """
    Name the operator that cost most parameters their gradients.

    What is meant so, as it seems, is told without an alarm: a part that is frozen for now, a teacher.
    """
    meant = [one for one in cuts if deliberate(record, one)]
    cuts = [one for one in cuts if one not in meant] or meant
    worst = cuts[0]
    place, instead = REASONS[worst.why]
    names = worst.parameters
    total = len(record.suspects) + record.trained
    who = f"{names[0]} reaches the loss and gets no gradient"
    if len(names) > 1:
        who = f"{names[0]} and {len(names) - 1} more of {total} parameters reach the loss and get no gradient"
    where = f" in {worst.op.module}" if worst.op.module else ""
    message = f"{who}: {place.format(op=worst.op.name)}{where}{at(worst)}; {instead}"
    file, line = located(worst)
    found = replace(
        finding(
            seen,
            KIND,
            message,
            severity="info" if worst in meant else "warning",
            evidence=evidence(record, cuts),
        ),
        module=worst.op.module,
        parameter=names[0],
        op=worst.op.name,
        file=file,
        line=line,
        label=worst.op.label,
    )
    return Verdict("bad", "Cut", message, found)


def deliberate(record: Truncation, one: Cut) -> bool:
    """Whether a cut is at a choice in the source, or in a part in evaluation mode while others train."""
    if one.why not in {"detach", "data", "no_grad", "inference"}:
        return False
    if located(one) in record.optional:
        return True
    teacher = one.why in {"no_grad", "inference"} and one.op.training is False
    return teacher and any(op.training for op in record.trace.ops)


def located(one: Cut) -> tuple[str | None, int | None]:
    """Return the line to look at: where gradients are switched off, that is the block's."""
    if one.why == "no_grad" and one.op.entered is not None:
        return one.op.entered
    return one.op.file, one.op.line


def at(one: Cut) -> str:
    """Say where it is."""
    file, line = located(one)
    return f" ({file}:{line})" if file else ""


def evidence(record: Truncation, cuts: list[Cut]) -> dict[str, object]:
    """Put the parameters and the reason, and where others are cut."""
    worst = cuts[0]
    return {
        "reason": worst.why,
        "parameters": list(worst.parameters[:SHOWN]),
        "cut_parameters": sum(len(one.parameters) for one in cuts),
        "without_gradient": len(record.suspects),
        "trained": record.trained,
        "switched_off_at": list(worst.op.switched) if worst.op.switched else None,
        "operator_at": [worst.op.file, worst.op.line],
        "others": [
            {
                "op": one.op.name,
                "reason": one.why,
                "file": one.op.file,
                "line": one.op.line,
                "module": one.op.module,
                "parameters": list(one.parameters[:OTHERS]),
            }
            for one in cuts[1 : 1 + OTHERS]
        ],
    }


REASONS: Mapping[Why, tuple[str, str]] = {
    "detach": ("`detach` cuts the graph", "use the tensor itself where it goes on to the loss"),
    "data": ("`.data` takes the value out of the graph", "use the tensor itself"),
    "number": ("`{op}` makes a plain number or array of it", "keep it a tensor up to the loss"),
    "no_grad": ("`{op}` runs with gradients switched off", "let it run with them where it is to be trained"),
    "inference": ("`{op}` runs in inference mode", "let it run with gradients where it is to be trained"),
    "integer": ("`{op}` has no gradient", "use a soft or straight-through form of it"),
    "collective": (
        "the collective `{op}` hands on no gradient",
        "put this rank's own tensor into its place, or use torch.distributed.nn.functional",
    ),
    "checkpoint": (
        "a reentrant checkpoint gives gradients only where an input requires one",
        "use `use_reentrant=False`, or `requires_grad_()` on its input",
    ),
    "closure": (
        "the custom Function `{op}` uses it without being given it",
        "pass it as an argument, and return its gradient from `backward`",
    ),
    "none": ("`backward` of the custom Function `{op}` returns None for it", "return its gradient"),
    "undeclared": (
        "the output of the custom Function `{op}` is not differentiable",
        "don't mark it so, and return its gradient from `backward`",
    ),
    "copy": ("`{op}` copies the value out of the graph", "use the tensor itself"),
    "gradient": (
        "`torch.autograd.grad` without `create_graph=True` has no gradient itself",
        "create the graph",
    ),
    "operator": ("`{op}` returns a tensor without a gradient", "use a differentiable form of it"),
}
"""By reason: what happens, and the way out."""
