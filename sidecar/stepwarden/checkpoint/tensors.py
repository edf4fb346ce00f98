"""A tensor as a checkpoint has it on disk, and the two things that may be wrong with a checkpoint."""

from dataclasses import dataclass
from pathlib import Path


class Torn(Exception):  # noqa: N818 - what a checkpoint is found to be, not an error of ours
    """A checkpoint that can't be read to its end: half written, or a part of it is missing."""


class Poisoned(Exception):  # noqa: N818 - what a checkpoint is found to be, not an error of ours
    """A checkpoint that can be read, and holds NaN or Inf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """
    Where a tensor's numbers are: `count` elements of `dtype` (torch's name for it) from `offset` in a file.

    `size` and `stride` are in elements; they say which of the numbers are the tensor's.
    """

    name: str
    path: Path
    offset: int
    count: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
