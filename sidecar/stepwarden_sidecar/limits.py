"""How much one asker may ask: pure, the clock is an argument (any clock, in seconds)."""

from collections.abc import Hashable
from dataclasses import dataclass, field

ASKERS = 20_000  # that are remembered: more than a job can have pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests a second, and so many at once after a pause."""

    each_second: float
    burst: float


@dataclass(slots=True)
class Allowance:
    """What is left to one asker, and how many of its requests wait for news."""

    left: float
    when: float
    waiting: int = 0


@dataclass(slots=True)
class Limits:
    """The askers' allowances; the one that asked longest ago is forgotten first."""

    askers: dict[Hashable, Allowance] = field(default_factory=dict)

    def ask(self, who: Hashable, rate: Rate, now: float) -> float:
        """Take one request from an asker's allowance. Returns the seconds to wait for it; 0: allowed."""
        known = self.askers.pop(who, None) or Allowance(rate.burst, now)
        known.left = min(known.left + (now - known.when) * rate.each_second, rate.burst)
        known.when = now
        self.askers[who] = known
        self.forget()
        if known.left < 1:
            return (1 - known.left) / rate.each_second
        known.left -= 1
        return 0.0

    def forget(self) -> None:
        """Let go of those beyond the number that is remembered, unless they wait."""
        if len(self.askers) <= ASKERS:
            return
        oldest = next((who for who, known in self.askers.items() if not known.waiting), None)
        if oldest is not None:
            del self.askers[oldest]

    def waits(self, who: Hashable, most: int) -> bool:
        """Count a request that waits; False where the asker has too many of them already."""
        known = self.askers[who]
        if known.waiting >= most:
            return False
        known.waiting += 1
        return True

    def waited(self, who: Hashable) -> None:
        """Count that it waits no more."""
        self.askers[who].waiting -= 1
