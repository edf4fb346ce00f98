"""What a replay found, in words, and as the fields of a finding: pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwarden.probes.birth import Birth, Step
    from stepwarden.wire import Finding

ADVICE = {
    "sqrt": "its slope at 0 is infinite: keep its input above 0, as by clamp(min=eps)",
    "log": "it is -Inf at 0: keep its input above 0, as by clamp(min=eps)",
    "div": "keep the divisor away from 0",
    "rsqrt": "it is Inf at 0: add an epsilon to its input",
    "pow": "its slope is infinite where a base of 0 has an exponent below 1",
    "norm": "its slope at 0 is NaN or Inf: add an epsilon below the root",
    "exp": "it overflows: subtract the maximum first, or bound its input",
    "softmax": "a row that is masked as a whole has no maximum: leave one entry, or skip the row",
    "acos": "its slope at 1 and -1 is infinite: clamp its input inside",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """
    The result of replaying a step.

    `status` "ok": something is to blame, and the fields say what; "unknown": `reason` says why not.
    `forward`: an operator of the forward pass made a bad value of finite ones.
    """

    status: Literal["ok", "unknown"]
    reason: str = ""
    cause: str = ""
    forward: bool = False
    op: str | None = None
    module: str | None = None
    parameter: str | None = None
    file: str | None = None
    line: int | None = None
    label: str | None = None
    largest_in: float | None = None
    largest_out: float | None = None
    smallest: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def of_birth(birth: Birth, steps: Sequence[Step], root: str, prefix: str = "") -> Story:
    """
    Tell what is to blame.

    `root` is what the module that was called is by its class, `prefix` its name in what holds it.
    """
    step = steps[birth.op] if birth.op is not None and 0 <= birth.op < len(steps) else None
    if step is not None:
        step = replace(step, module=joined(prefix, step.module))
    told = Story(
        status="ok",
        module=step.module if step is not None else None,
        file=step.file if step is not None else None,
        line=step.line if step is not None else None,
        label=step.label if step is not None else None,
        largest_in=birth.largest_in,
        largest_out=birth.largest_out,
        smallest=birth.smallest,
    )
    if birth.source == "op":
        op = step.name if step is not None else of_node(birth.node or "")
        cause = sentence(op, told.module, step, birth)
        return replace(told, cause=cause, forward=not birth.backward, op=op)
    bad = said(birth.largest_in)
    if birth.source in {"parameter", "buffer"}:
        name = joined(prefix, birth.name)
        cause = f"the {birth.source} {name} holds {bad} itself"
        parameter = name if birth.source == "parameter" else None
        return replace(told, cause=cause, module=name.rpartition(".")[0], parameter=parameter)
    if birth.source == "argument":
        cause = f"the input of {root} (argument {birth.name}) itself holds {bad}: look at the data"
        return replace(told, cause=cause, module=prefix)
    return replace(told, status="unknown", reason=f"a tensor that no recorded operator made holds {bad}")


def joined(prefix: str, name: str | None) -> str:
    """Return a dotted name below a prefix."""
    return ".".join(filter(None, (prefix, name)))


def sentence(op: str, module: str | None, step: Step | None, birth: Birth) -> str:
    """Say which operator made what, where, of what, and what one can do about it."""
    inside = f" in {module}" if module else ""
    at = f" ({PurePath(step.file).name}:{step.line})" if step is not None and step.file else ""
    made = said(birth.largest_out)
    advice = f" - {ADVICE[op]}" if op in ADVICE else ""
    if birth.backward:
        saved = (
            ""
            if birth.smallest is None
            else f"; the smallest value that it had saved is {birth.smallest:.3g}"
        )
        return (
            f"the backward of {op}{inside}{at} made {made} of finite gradients "
            f"(the largest {number(birth.largest_in)}{saved}){advice}"
        )
    return f"{op}{inside}{at} made {made} of finite inputs (the largest {number(birth.largest_in)}){advice}"


def of_node(name: str) -> str:
    """Return the operator of a backward node by its name, as `log_softmax` of "LogSoftmaxBackward0"."""
    bare = name.rstrip("0123456789").removesuffix("Backward")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in bare).lstrip("_")


def said(largest: float | None) -> str:
    """Say what is not finite."""
    return "Inf" if largest is not None and math.isinf(largest) else "NaN"


def number(value: float | None) -> str:
    """Say a magnitude."""
    return "unknown" if value is None else f"{value:.3g}"


def richer(finding: Finding, story: Story, seconds: float, saved: Mapping[str, str]) -> Finding:
    """Put a story into a finding."""
    replay = {"status": story.status, "reason": story.reason, "seconds": round(seconds, 3)}
    evidence: dict[str, Any] = {**finding.evidence, "replay": replay, **story.more, **saved}
    if story.status != "ok":
        return replace(finding, evidence=evidence)
    evidence |= {"largest_input": story.largest_in, "largest_output": story.largest_out}
    if story.smallest is not None:
        evidence["smallest_saved"] = story.smallest
    return replace(
        finding,
        message=f"{story.cause}: {finding.message}",
        module=story.module,
        parameter=story.parameter or finding.parameter,
        op=story.op,
        label=story.label or finding.label,
        file=story.file or finding.file,
        line=story.line if story.file else finding.line,
        evidence=evidence,
    )


def of_failure(finding: Finding, story: Story, seconds: float) -> Finding:
    """Put a story into the finding of an exception, and into its traceback."""
    made = richer(finding, story, seconds, {})
    if story.status != "ok":
        return made
    within = f", within {story.label}" if story.label else ""
    traceback = f"{finding.evidence.get('traceback', '')}born of: {story.cause}{within}\n"
    return replace(made, parameter=finding.parameter, evidence={**made.evidence, "traceback": traceback})
