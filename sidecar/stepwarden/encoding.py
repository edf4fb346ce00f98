"""
How fields are put as JSON and read again.

JSON has no NaN and no infinity, and a NaN is what this project is about: on the wire
they are the strings "NaN", "Infinity" and "-Infinity", which `float` reads back.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from dataclasses import Field

FLOATS = frozenset({"loss", "gradient_norm", "steps_per_second", "time", "seconds", "overhead_seconds"}) | {
    *("norm", "sketch", "weight", "weights", "scale", "own", "used"),  # of a Replica
    *("still", "waiting", "median", "spread", "longest"),  # of a Pulse
}


def floats(values: Any) -> tuple[float, ...]:
    """Read a list of numbers."""
    return tuple(map(float, values))


def texts(values: Any) -> tuple[str, ...]:
    """Read a list of words."""
    return tuple(map(str, values))


def seconds(values: Any) -> dict[str, float]:
    """Read a mapping of names to numbers."""
    return {str(name): float(value) for name, value in values.items()}


READS: Mapping[str, Callable[[Any], Any]] = {
    "samples": floats,
    "rates": floats,
    "marks": texts,
    "spent": seconds,
}


def plain(value: Any) -> Any:
    """Make a value one that any JSON reader takes: NaN and infinities become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def countable(value: int) -> bool:
    """Whether a whole number is one that counts something: no truth value, and within 64 bits."""
    return not isinstance(value, bool) and -(2**63) <= value < 2**63


def whole(value: Any) -> int:
    """Read a whole number. Raises `TypeError`."""
    if not isinstance(value, int) or not countable(value):
        message = f"{value!r:.80} is no whole number"
        raise TypeError(message)
    return value


def check(spec: "Field[Any]", value: Any) -> None:
    """Raise `TypeError` where a value is not of its field's type, so that no reader trips over it."""
    right = True
    if spec.type in {int, str, int | None, str | None}:
        right = isinstance(value, spec.type)  # type: ignore[arg-type]  # these four are what isinstance takes
        right = right and (not isinstance(value, int) or countable(value))
    elif get_origin(spec.type) is Literal:
        right = value in get_args(spec.type)
    elif get_origin(spec.type) is Mapping:
        right = isinstance(value, Mapping)
    elif value is None:
        right = spec.default is None
    if not right:
        message = f"{spec.name} can't be {value!r:.80}"
        raise TypeError(message)
