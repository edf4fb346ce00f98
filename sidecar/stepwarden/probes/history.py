"""
What a step's loss and gradient norm are beside those of the steps before: plain statistics.

Training curves have heavy tails and change their level, so a value has left its history only where
it is beyond all that was ever seen, by a factor, and beyond the spread of the last steps as well.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass

WINDOW = 100  # steps that are remembered
SIGMA = 1.4826  # a normal distribution's standard deviation in its median absolute deviations
CALM = 0.05  # the least spread, in natural logarithms: losses of a fixed batch hardly differ
FAR = 6.0  # standard deviations
FLOOR = 1.0  # what stays below was small, and may grow: the first reward of a sparse task, a first hard batch
LAG = 4  # steps: a value is compared with the highest before these, or a steady rise would hide itself
AT_ONCE = 2  # so many first values are waited for by nothing
EARLY = 100.0  # the factor for loss and norm together, as long as there is too little history


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """
    One number of a step, and what it was before.

    `before` holds the last finite ones, the newest last, of `count` that there were; `highest` is
    the largest magnitude among all of these but the last `LAG` (0 where there was none).
    """

    value: float | None
    before: tuple[float, ...] = ()
    count: int = 0
    highest: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether the window is all that it should be: what a part of it says is nothing."""
        return len(self.before) >= min(self.count, WINDOW)

    @property
    def ratio(self) -> float:
        """How many times the largest magnitude so far the value is; 0 where that can't be said."""
        if self.value is None or not math.isfinite(self.value) or self.highest <= 0:
            return 0.0
        return self.value / self.highest

    @property
    def far(self) -> float:
        """How many standard deviations (robust ones) the value lies above the last steps' median."""
        if self.value is None or not self.before or not math.isfinite(self.value):
            return 0.0
        if min(self.value, *self.before) > 0:
            return distance(math.log(self.value), [math.log(each) for each in self.before], CALM)
        return distance(self.value, list(self.before), CALM * self.highest)

    @property
    def median(self) -> float:
        """The median of the last steps."""
        return statistics.median(self.before) if self.before else math.nan


class Remembered:
    """The finite values of one number of the steps so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self.window: deque[float] = deque(maxlen=WINDOW)
        self.newest: deque[float] = deque()
        self.count = 0
        self.highest = 0.0

    def series(self, value: float | None) -> Series:
        """Put a step's value beside what was before, and remember it for the steps to come."""
        made = Series(value=value, before=tuple(self.window), count=self.count, highest=self.highest)
        if value is not None and math.isfinite(value):
            self.window.append(value)
            self.newest.append(abs(value))
            self.count += 1
            while len(self.newest) > LAG or (self.newest and self.count <= AT_ONCE):
                self.highest = max(self.highest, self.newest.popleft())
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The parameter with the largest gradient norm of some."""

    name: str | None
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """
    One optimizer's step beside those before.

    `loss` is the mean over the backward passes of a step, so that more micro-batches are no rise.
    `peak` is the worst parameter, where the norm is high; `adapter` the worst low-rank or other
    adapter's, where there are any.
    """

    loss: Series
    norm: Series
    peak: Peak | None = None
    adapter: Peak | None = None


def distance(value: float, before: list[float], least: float) -> float:
    """Return how many robust standard deviations a value lies above the median."""
    median = statistics.median(before)
    spread = SIGMA * statistics.median([abs(each - median) for each in before])
    return (value - median) / max(spread, least, math.ulp(0.0))


def together(course: Course, factor: float, steps: float) -> bool:
    """
    Whether loss and gradients have left their history in the same step.

    With too little history both must be `EARLY` times what they ever were.
    """
    loss, norm = course.loss, course.norm
    if min(loss.count, norm.count) < AT_ONCE or max(loss.value or 0.0, norm.value or 0.0) < FLOOR:
        return False
    if min(loss.count, norm.count) < steps:
        return min(loss.ratio, norm.ratio) >= EARLY
    return min(loss.ratio, norm.ratio) >= factor and min(loss.far, norm.far) >= FAR
