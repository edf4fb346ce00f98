"""
Where a parameter's value goes on to the loss and its gradient doesn't come back.

A parameter that no loss depends on is unused, and that is healthy: an idle expert, a head of another
task. One whose value reaches the loss, and that gets no gradient, was cut off on the way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from stepwarden.probes.trace import Op, Trace

Why = Literal[
    "detach", "data", "number", "no_grad", "inference", "integer", "collective", "checkpoint", "closure",
    "none", "undeclared", "copy", "gradient", "operator",
]  # fmt: skip

COLLECTIVES = (
    "all_gather", "all_reduce", "broadcast", "reduce", "gather", "scatter", "reduce_scatter", "all_to_all",
)  # fmt: skip
INTEGERS = frozenset(
    {
        "argmax", "argmin", "argsort", "long", "int", "short", "byte", "bool", "sign", "one_hot", "bincount",
        "gt", "lt", "ge", "le", "eq", "ne", "searchsorted", "bucketize", "multinomial", "nonzero", "histc",
        "isnan", "isinf", "isfinite", "logical_not", "logical_and", "logical_or", "logical_xor", "unique",
    }
)  # fmt: skip
NUMBERS = frozenset({"item", "tolist", "numpy", "float", "array", "complex"})
COPIES = frozenset({"tensor", "as_tensor", "asarray", "new_tensor", "from_numpy", "Parameter", "FloatTensor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An operator (of those of a trace) behind which some parameters have no gradient, and why."""

    op: Op
    why: Why
    parameters: tuple[str, ...]


class Flow:
    """What flows where in a trace."""

    def __init__(self, trace: Trace) -> None:
        """Index the operators by what they use and make."""
        self.trace = trace
        self.users: dict[int, list[Op]] = defaultdict(list)
        self.makers: dict[int, list[Op]] = defaultdict(list)
        for op in trace.ops:
            for value in op.inputs:
                self.users[value].append(op)
            for value in op.outputs:
                self.makers[value].append(op)
        self.used = self.ancestors(trace.losses)

    def ancestors(self, values: Iterable[int]) -> set[int]:
        """Return the values that some values depend on, themselves included."""
        found = set(values)
        waiting = list(found)
        while waiting:
            for op in self.makers[waiting.pop()]:
                fresh = set(op.inputs) - found
                found |= fresh
                waiting += fresh
        return found

    def differentiable(self, value: int) -> bool:
        """Whether a gradient can come back to a value."""
        return self.trace.values[value].requires_grad

    def cuts(self, start: int) -> list[tuple[Op, bool]]:
        """
        Return the operators behind which a value that reaches the loss has no gradient, in order.

        The second of each says whether its custom backward gave None.
        """
        found: dict[int, bool] = {}
        seen = {start}
        waiting = [start]
        while waiting:
            value = waiting.pop()
            for op in self.users[value]:
                if op.inside is not None and value in outer(self.trace, op).inputs:
                    continue  # autograd asks the custom function for its gradient
                outputs = [output for output in op.outputs if output in self.used]
                if value in op.blocked and outputs:
                    found[op.index] = True
                elif any(not self.differentiable(output) for output in outputs):
                    found.setdefault(op.index, False)
                fresh = [output for output in outputs if self.differentiable(output) and output not in seen]
                if value not in op.blocked:
                    seen.update(fresh)
                    waiting += fresh
        return [(self.trace.ops[index], none) for index, none in sorted(found.items())]


def find(trace: Trace, suspects: Collection[str]) -> list[Cut]:
    """Return where the suspects' gradients end, what costs most parameters first."""
    flow = Flow(trace)
    lost: Mapping[tuple[int, Why], list[str]] = defaultdict(list)
    for value in trace.values:
        if (
            value.leaf is not None
            and value.leaf in suspects
            and value.id in flow.used
            and value.requires_grad
        ):
            cuts = [(outer(trace, op), why(trace, op, none=none)) for op, none in flow.cuts(value.id)]
            if cuts:
                op, reason = min(cuts, key=lambda cut: (cut[1] == "integer", cut[0].index))
                lost[op.index, reason].append(value.leaf)
    found = [
        Cut(op=trace.ops[index], why=reason, parameters=tuple(names))
        for (index, reason), names in lost.items()
    ]
    return sorted(found, key=lambda cut: (-len(cut.parameters), cut.op.index))


def outer(trace: Trace, op: Op) -> Op:
    """Return the custom function that ran an operator, where one did: autograd sees only the outermost."""
    while op.inside is not None:
        op = trace.ops[op.inside]
    return op


def why(trace: Trace, op: Op, *, none: bool) -> Why:  # noqa: PLR0911 - one for each way of a gradient's end
    """Say why an operator's output has no gradient."""
    if op.inside is not None:
        return "checkpoint" if outer(trace, op).name == "checkpoint" else "closure"
    if op.custom and op.grad_enabled:
        if op.name == "checkpoint":
            return "checkpoint"
        return "none" if none else "undeclared"
    if op.inference:
        return "inference"
    for reason, names in PLAIN.items():
        if op.name in names:
            return reason
    if op.name.startswith(COLLECTIVES):
        return "collective"
    if not op.grad_enabled:
        return "no_grad"
    floating = any(trace.values[value].floating for value in op.outputs)
    return "integer" if op.name in INTEGERS or not floating else "operator"


PLAIN: Mapping[Why, frozenset[str]] = {
    "detach": frozenset({"detach"}),
    "data": frozenset({"data"}),
    "number": NUMBERS,
    "gradient": frozenset({"grad"}),
    "copy": COPIES,
}
