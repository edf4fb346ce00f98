"""The stack of another thread, as the user would read it."""

import functools
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

OURS = str(Path(__file__).parents[1])
LIBRARIES = tuple(
    path for key in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(key))
)
LONGEST = 4096  # bytes; its end says most
DEEPEST = 60  # calls that are read


def frames(innermost: FrameType | None) -> list[FrameType]:
    """Return a stack's innermost calls, the innermost last."""
    found: list[FrameType] = []
    while innermost is not None and len(found) < DEEPEST:
        found.append(innermost)
        innermost = innermost.f_back
    return found[::-1]


def of_engine(innermost: Mapping[int, FrameType], thread: int) -> list[FrameType]:
    """
    Return the calls of a thread, other than the given one, that autograd's engine runs Python in, if one is.

    On an accelerator a backward pass runs in such threads while its caller waits. C++ makes them, so none
    begins in Python's `threading`, but in a function of torch's or of the user's.
    """
    for other, frame in innermost.items():
        calls = frames(frame)
        file = calls[0].f_code.co_filename
        if other != thread and len(calls) < DEEPEST and ("/torch/" in file or is_users(file)):
            return calls
    return []


@functools.lru_cache(4096)
def is_ours(file: str) -> bool:
    """Whether a file is this package's."""
    return file.startswith(OURS)


@functools.lru_cache(4096)
def is_users(file: str) -> bool:
    """Whether a file is the user's own: in no library, and not this package's."""
    return not file.startswith((*LIBRARIES, OURS, "<")) and "site-packages" not in file


def last_users(lines: Sequence[tuple[str, int]]) -> tuple[str | None, int | None]:
    """Return the last of some lines of code that is the user's own."""
    return next(((file, line) for file, line in reversed(lines) if is_users(file)), (None, None))


def place(stack: Sequence[FrameType]) -> tuple[str | None, int | None]:
    """Return the innermost line that is the user's own."""
    return last_users([(frame.f_code.co_filename, frame.f_lineno) for frame in stack])


def text(stack: Sequence[FrameType]) -> str:
    """Write a stack as a traceback is written, without this package's calls; of a long one the end."""
    shown = [(frame, frame.f_lineno) for frame in stack if not is_ours(frame.f_code.co_filename)]
    lines = traceback.StackSummary.extract(shown).format()
    whole = "".join(lines).encode(errors="replace")
    if len(whole) <= LONGEST:
        return whole.decode()
    kept = whole[-LONGEST:].decode(errors="ignore")
    return kept[kept.find("\n  File ") + 1 :]
