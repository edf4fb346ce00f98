"""NonFiniteActivation: a module's output holds NaN or Inf while its inputs and parameters are finite."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from stepwarden.probes.finding import finding
from stepwarden.wire import Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwarden.probes.observation import Observation

KIND = "NonFiniteActivation"
DEFAULTS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """
    What a replay found in the forward pass of a bad step.

    `op` made a non-finite output (`largest_out`) of finite inputs (`largest_in`), and that flowed on to the
    loss or to a gradient that will be used; None where all such values were finite. `severity` is that of
    the finding that the replay was made for.
    """

    op: str | None = None
    module: str | None = None
    file: str | None = None
    line: int | None = None
    label: str | None = None
    largest_in: float | None = None
    largest_out: float | None = None
    severity: Severity = "critical"


NEEDS = Activation


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say which operator made NaN or Inf. What was masked away later is never in the record."""
    born = seen.record(Activation)
    if born is None:
        return Verdict("unknown", "NotReplayed", "activations are looked at when a step is run again")
    if born.op is None:
        return Verdict("ok", "Finite", "all that flowed on in the forward pass is finite")
    where = f" in {born.module}" if born.module else ""
    at = f" ({PurePath(born.file).name}:{born.line})" if born.file else ""
    message = (
        f"{born.op}{where}{at} made {word(born.largest_out)} of finite inputs "
        f"(the largest is {shown(born.largest_in)}) on rank {seen.rank}"
    )
    evidence = {"largest_input": born.largest_in, "largest_output": born.largest_out}
    made = finding(seen, KIND, message, severity=born.severity, evidence=evidence)
    made = dataclasses.replace(
        made, op=born.op, module=born.module, label=born.label, file=born.file, line=born.line
    )
    return Verdict("bad", "NotFinite", message, made)


def word(largest: float | None) -> str:
    """Say what is not finite."""
    return "NaN" if largest is None or largest != largest else "Inf"  # noqa: PLR0124 - NaN alone is unlike itself


def shown(largest: float | None) -> str:
    """Say a magnitude."""
    return "unknown" if largest is None else f"{largest:.3g}"
