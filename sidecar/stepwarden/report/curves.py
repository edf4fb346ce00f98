"""From numbers over steps to the lines of a drawing: pure. Lengths are in the units of the SVG's view box."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 880, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 22, 30
LOGARITHMIC = 100.0  # highest by lowest, from which on the axis is logarithmic

Points = Sequence[tuple[int, float | None]]


@dataclass(frozen=True, slots=True)
class Curve:
    """One rank's curve: its path, and where along the top its values are not finite."""

    rank: int
    path: str
    broken: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing: curves, ticks of both axes (place, text), and the places of findings."""

    title: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """Where a value comes to lie: from `low` at `start` to `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high, here = (math.log10(v) if self.logarithmic else v for v in (self.low, self.high, value))
        share = (here - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def chart(title: str, ranks: Mapping[int, Points], marks: Iterable[int]) -> Chart | None:
    """Draw one value of all ranks; None where there is nothing to draw."""
    steps = [step for points in ranks.values() for step, value in points if value is not None]
    if not steps:
        return None
    x = Axis(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = vertical([v for points in ranks.values() for _, v in points if v is not None and math.isfinite(v)])
    return Chart(
        title=f"{title} (logarithmic)" if y.logarithmic else title,
        curves=tuple(curve(rank, points, x, y) for rank, points in ranks.items()),
        x_ticks=tuple((x.at(tick), f"{tick:g}") for tick in ticks(x.low, x.high, 8, whole=True)),
        y_ticks=tuple((y.at(tick), text(tick)) for tick in y_ticks(y)),
        marks=tuple(
            (x.at(step), f"finding at step {step}") for step in sorted(set(marks)) if x.low <= step <= x.high
        ),
    )


def vertical(values: Sequence[float]) -> Axis:
    """Choose the vertical axis."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low > 0 and high > LOGARITHMIC * low:
        return Axis(low, high, HEIGHT - BOTTOM, TOP, logarithmic=True)
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    return Axis(low - room, high + room, HEIGHT - BOTTOM, TOP)


def curve(rank: int, points: Points, x: Axis, y: Axis) -> Curve:
    """Draw one rank: a line that is interrupted where a value is missing or not finite."""
    path, pen = [], "M"
    broken = []
    for step, value in points:
        if value is None or not math.isfinite(value):
            pen = "M"
            if value is not None:
                broken.append((x.at(step), f"rank {rank}, step {step}: {value}"))
            continue
        path.append(f"{pen}{x.at(step)} {y.at(value)}")
        pen = "L"
    return Curve(rank, "".join(path), tuple(broken))


def y_ticks(axis: Axis) -> list[float]:
    """Return the ticks of a vertical axis."""
    if not axis.logarithmic:
        return ticks(axis.low, axis.high, 5)
    powers = range(math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high)) + 1)
    every = max(1, len(powers) // 5)
    return [10.0**power for power in powers][::every]


def ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """Return round numbers between two, about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    step = max(1.0, step) if whole else step
    return [round(step * number, 12) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def text(value: float) -> str:
    """Write a tick."""
    return f"{value:.4g}"
