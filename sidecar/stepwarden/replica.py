"""What makes a rank's step comparable with the same step of other ranks: small, and said with every step."""

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """
    One step of one optimizer on one rank, beside what other ranks say of the same step.

    `run` tells a rank's processes apart. `optimizer` is its place in the order of their first steps, `count`
    the number of steps that it made before this one. `group` names the ranks that hold replicas, `size` is
    their number. "": the rank does not know that it is a replica, and then `why` says what it knows. A name
    that begins with "?": it may be one.
    `names` is a digest of the compared parameters' names and shapes, `tensors` how many of them have a
    gradient. `digest` is one of their gradients' norms, `norm` the norm over all, `sketch` the sum of the
    norms' logarithms: unlike machines may round the norms of the same gradients in another way.
    `parameters`, `weight` and `weights` say the same of the parameters before the update; `samples` are a
    few single values of them. "" and None stand for what was not looked at in this step.
    `scale` is the GradScaler's factor, `rates` are the learning rates of the groups, `inputs` is a digest
    of the first forward pass' input. `own` and `used` are the same weighted sum over one gradient, before
    the reduction and at the boundary. `hint` says what the rank itself sees of a missing reduction, `file`
    and `line` where to look.
    """

    rank: int
    run: str
    step: int
    optimizer: int
    count: int
    group: str = ""
    size: int = 0
    why: str = ""
    names: str = ""
    tensors: int = 0
    digest: str = ""
    norm: float | None = None
    sketch: float | None = None
    parameters: str = ""
    weight: float | None = None
    weights: float | None = None
    samples: tuple[float, ...] = ()
    scale: float | None = None
    rates: tuple[float, ...] = ()
    inputs: str = ""
    own: float | None = None
    used: float | None = None
    hint: str = ""
    file: str | None = None
    line: int | None = None

    def told(self) -> dict[str, Any]:
        """Put what differs from its default: this is said at every step, so it is short and quickly made."""
        return {
            name: value
            for name, value, default in zip(NAMES, VALUES(self), DEFAULTS, strict=True)
            if value is not default and value != default
        }


NAMES = tuple(spec.name for spec in fields(Replica))
DEFAULTS = tuple(spec.default for spec in fields(Replica))
VALUES = attrgetter(*NAMES)
