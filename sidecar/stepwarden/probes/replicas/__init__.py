"""
Probes that compare ranks: pure functions from the same step of several ranks to a verdict.

The hub asks them, in the order of `PROBES`: a cause stands before its consequence. To add one, write
its file (`KIND`, `judge`) and name it here. No rank waits for them, and none calls a collective.
"""

from collections.abc import Iterator
from typing import Protocol

from stepwarden.probes.replicas import (
    data_repeated,
    gradient_not_synchronized,
    gradient_scale_wrong,
    replicas_diverged,
)
from stepwarden.probes.replicas.together import Together
from stepwarden.wire import Verdict

__all__ = ["KINDS", "PROBES", "Probe", "Together", "judge"]


class Probe(Protocol):
    """One file of this folder."""

    @property
    def KIND(self) -> str:  # noqa: N802 - a constant of each file
        """The kind of its findings."""

    def judge(self, seen: Together, /) -> Verdict:
        """Judge a step of all ranks."""


PROBES: tuple[Probe, ...] = (
    gradient_scale_wrong,
    data_repeated,
    replicas_diverged,
    gradient_not_synchronized,
)
KINDS = tuple(probe.KIND for probe in PROBES)


def judge(seen: Together) -> Iterator[tuple[str, Verdict]]:
    """Yield each probe's kind and verdict."""
    for probe in PROBES:
        yield probe.KIND, probe.judge(seen)
