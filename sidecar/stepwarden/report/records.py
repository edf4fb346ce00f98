"""Reads the records of a run. A line that can't be read (torn by a kill) is passed over."""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from stepwarden.wire import Finding, Note, StepTaken, from_dict

Record = TypeVar("Record", Finding, StepTaken, Note)

MOST = 2000  # points of a rank that a curve keeps


def read_findings(path: Path) -> list[Finding]:
    """Read findings, oldest first."""
    return list(lines(path, Finding))


def read_steps(path: Path) -> dict[int, list[StepTaken]]:
    """Read the steps of each rank in their order; a long run is thinned, but for what is not finite."""
    ranks: dict[int, list[StepTaken]] = {}
    for step in lines(path, StepTaken):
        kept = ranks.setdefault(step.rank, [])
        kept.append(step)
        if len(kept) > 2 * MOST:
            ranks[step.rank] = thin(kept)
    return dict(sorted(ranks.items()))


def thin(steps: list[StepTaken]) -> list[StepTaken]:
    """Keep every other step, and of those not finite the first ones."""
    odd = [step for step in steps if not finite(step)][: MOST // 2]
    keep = {id(step) for step in (*steps[::2], *odd)}
    return [step for step in steps if id(step) in keep]


def finite(step: StepTaken) -> bool:
    """Whether loss and gradient norm are finite, where they are known."""
    return all(value is None or math.isfinite(value) for value in (step.loss, step.gradient_norm))


def lines(path: Path, cls: type[Record]) -> Iterator[Record]:
    """Read one record a line; none where there is no file."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValueError):
                yield from_dict(cls, json.loads(line))
