"""Where in a step a rank is, and how many seconds of its own work each part of its steps took."""

from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal

from stepwarden.pulse import Phase

State = Literal["starting", "data", "forward", "backward", "behind", "boundary", "update"]
"""As `Phase`, but for: behind the backward pass, at the boundary (the agent's own time), in the update."""

PARTS = ("data", "forward", "backward", "optimizer")
WAITING = "waiting"
WINDOW = 50  # steps whose seconds give the pace

OWN: Mapping[tuple[State, State], str] = {
    ("data", "backward"): "forward",  # of a whole step that was compiled
    ("data", "boundary"): "optimizer",  # of another optimizer
    ("behind", "forward"): "data",  # of the next micro-batch
    ("behind", "backward"): "forward",  # of another loss
    ("behind", "boundary"): "optimizer",  # clipping, unscaling
}
"""What the time between two events is counted as, where it isn't by the first one's own name."""


class Phases:
    """
    Where the rank is in its step. Times are those of one clock that only grows, in seconds.

    `events` grows with everything that happens. `spent` are the steps that are whole so far, and the sums of
    their seconds by part: it is replaced as one, as another thread reads it.
    """

    def __init__(self, waited: Callable[[], float]) -> None:
        """Begin before the first forward pass; `waited` gives the seconds inside collectives so far."""
        self.waited = waited
        self.state: State = "starting"
        self.step = 0
        self.events = 0
        self.since = self.waited_before = 0.0
        self.parts = dict.fromkeys((*PARTS, WAITING), 0.0)
        self.spent: tuple[int, dict[str, float]] = (0, dict(self.parts))
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.running: float | None = None  # seconds since the boundary of the step before
        self.whole = -1  # the last step that reached its boundary
        self.passes = self.expected = 0  # backward passes of this step, and of the one before

    @property
    def phase(self) -> Phase:
        """Return where it is, in the words of a pulse."""
        match self.state:
            case "behind":
                return "data" if self.passes < self.expected else "optimizer"
            case "boundary" | "update":
                return "optimizer"
            case state:
                return state

    def enter(self, state: State, now: float, own_until: float | None = None) -> None:
        """
        Enter a state; the time since the last one is the rank's own, but for that inside collectives.

        What lies behind `own_until` is waiting as well, though no collective of Python's was seen.
        """
        waited = self.waited()
        part = OWN.get((self.state, state), "optimizer" if self.state == "update" else self.state)
        if part in self.parts:
            whole = now - self.since
            own = (whole if own_until is None else own_until - self.since) - (waited - self.waited_before)
            own = min(max(own, 0.0), whole)
            self.parts[part] += own
            self.parts[WAITING] += whole - own
        self.state, self.since, self.waited_before = state, now, waited
        self.events += 1

    def forward(self, now: float) -> None:
        """Stand before a forward pass."""
        self.enter("forward", now)

    def backward(self, now: float) -> None:
        """Stand before a backward pass."""
        self.enter("backward", now)

    def behind(self, now: float, accumulated: float) -> None:
        """Stand behind a backward pass; `accumulated`: when the last gradient that is reduced was there."""
        if self.state == "backward":
            self.passes += 1
            self.enter("behind", now, accumulated if accumulated > self.since else None)

    def boundary(self, now: float, step: int, seconds: float | None) -> None:
        """Stand before an update: `seconds` are those since the boundary before, without holds."""
        self.enter("boundary", now)
        self.step = step
        if step > self.whole:
            self.expected, self.passes = self.passes, 0
            self.commit(seconds)
            self.whole = step
        elif seconds is not None and self.running is not None:
            self.running += seconds  # another optimizer of the same step

    def commit(self, seconds: float | None) -> None:
        """End a step: from its boundary to the one before."""
        if seconds is not None and self.running is not None:
            self.seconds.append(self.running + seconds)
        self.running = 0.0
        steps, sums = self.spent
        self.spent = (steps + 1, {name: sums[name] + part for name, part in self.parts.items()})
        self.parts = dict.fromkeys(self.parts, 0.0)

    def released(self, now: float, *, skipped: bool) -> None:
        """Stand behind the boundary: the update comes, unless it is left out."""
        self.enter("update", now)
        if skipped:
            self.stepped(now)

    def stepped(self, now: float) -> None:
        """Stand behind an update."""
        self.enter("data", now)
        self.step = self.whole + 1

    def pace(self) -> tuple[float | None, float | None, float | None]:
        """Return median, median absolute deviation and the longest of the last steps' seconds."""
        known = list(self.seconds)
        if not known:
            return None, None, None
        middle = median(known)
        return middle, median(abs(one - middle) for one in known), max(known)
