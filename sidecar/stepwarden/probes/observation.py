"""One step of one rank in plain numbers, as its probes see it."""

from dataclasses import dataclass
from typing import TypeVar

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """
    What is non-finite among some tensors.

    The tensor nearest to the birth is named, with its counts of NaN and Inf (None where the
    tensor was gone before they could be counted); `tensors` of all `of` hold some.
    """

    name: str | None
    tensors: int
    of: int
    nan: int | None = None
    inf: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        """Say it with the numbers."""
        name = self.name or "a parameter that belongs to no module"
        others = f" (so do {self.tensors - 1} more of {self.of} tensors)" if self.tensors > 1 else ""
        counted = [f"{count} {what}" for count, what in ((self.nan, "NaN"), (self.inf, "Inf")) if count]
        if not counted:
            return f"{name} holds NaN or Inf{others}"
        return f"{name} holds {' and '.join(counted)} in {self.size} values{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """
    What a rank's optimizer is about to use in a step.

    `loss` is the sum of the scalars that backward started from since the step before, without a
    scaler's factor. `gradient_norm` is the L2 norm of the rank's own gradients (None: it has none)
    and may overflow; `gradients` is only set where a value is really NaN or Inf. `scaled`: a
    scaler will itself skip a bad step.
    `parameters` speaks of the values before the update, None also where they were not `checked`.
    `local` says whether the rank's own gradient was bad before the reduction, if that is known.
    `late`: it was read after the update; `updated`: the update is behind, and only records are judged.
    `norms` and `losses` are the finite gradient norms and losses of the steps before, the last one last.
    `records` are what watches saw, one of a type. `since` is a step whose bad update was let through,
    `file` and `line` the call of backward.
    """

    rank: int
    step: int
    loss: float | None = None
    gradient_norm: float | None = None
    gradients: NonFinite | None = None
    scaled: bool = False
    checked: bool = False
    parameters: NonFinite | None = None
    local: bool | None = None
    late: bool = False
    updated: bool = False
    norms: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    records: tuple[object, ...] = ()
    since: int | None = None
    file: str | None = None
    line: int | None = None

    def record(self, cls: type[Record]) -> Record | None:
        """Return what a watch saw of a thing, if it did in this step."""
        return next((record for record in self.records if isinstance(record, cls)), None)
