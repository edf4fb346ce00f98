"""The newest checkpoint of a folder that is whole and finite, and why newer ones were passed over."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepwarden.checkpoint import finite, whole
from stepwarden.checkpoint.find import Candidate, candidates
from stepwarden.checkpoint.tensors import Poisoned, Torn

Word = Literal["good", "torn", "poisoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A checkpoint, what it was found to be, and why, in a few words."""

    candidate: Candidate
    word: Word
    reason: str


def judge(candidate: Candidate) -> Judged:
    """Read a checkpoint to its end."""
    try:
        count = finite.check(whole.tensors(candidate))
    except Torn as error:
        return Judged(candidate=candidate, word="torn", reason=str(error))
    except Poisoned as error:
        return Judged(candidate=candidate, word="poisoned", reason=str(error))
    tensors = "1 tensor is finite" if count == 1 else f"{count} tensors are finite"
    return Judged(candidate=candidate, word="good", reason=tensors if count else "read to its end")


def judged(directory: Path, *, every: bool = False) -> Iterator[Judged]:
    """Judge checkpoints, newest first, up to the first good one (`every`: all). Raises `OSError`."""
    os.listdir(directory)  # noqa: PTH208 - to say that it isn't there, or can't be read
    for candidate in candidates(directory):
        found = judge(candidate)
        yield found
        if found.word == "good" and not every:
            return
