"""A norm that stays at a usual limit divided by the loss scale: what clipping by hand leaves behind."""

from __future__ import annotations

import math

STEPS = 8  # in a row: a norm that stays the same for so long was clipped
SPREAD = 1e-3  # of the limit, from step to step; rounding in half precision is less
SMALL = 1e-3  # the norm that nobody clips to on purpose
SCALED = 128.0  # the scale from which on it matters
USUAL = (1e-2, 1e3)  # limits that people clip to


class Steady:
    """The norms of one optimizer's steps, before them the limit that they hint at."""

    __slots__ = ("limit", "run")

    def __init__(self) -> None:
        """Begin without any."""
        self.limit, self.run = math.nan, 0

    def look(self, norm: float, scale: float) -> float | None:
        """Return the limit that `STEPS` norms in a row, each multiplied by its step's scale, agree on."""
        limit = norm * scale
        near = abs(limit - self.limit) <= SPREAD * limit  # never with a NaN
        fits = norm < SMALL and scale >= SCALED and USUAL[0] <= limit <= USUAL[1]
        self.run = (self.run + 1 if near else 1) if fits else 0
        self.limit = limit
        return limit if self.run >= STEPS else None
