"""What an uncaught exception of the user's code becomes: a finding with its whole traceback."""

import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from stepwarden.agent.hooks import labels
from stepwarden.wire import Finding

LONGEST = 16 * 1024  # bytes of a traceback that cross the wire; its end says most
LOST_PEER = ("closed by peer", "reset by peer", "Connection refused", "Broken pipe", "Timed out")
OURS = str(Path(__file__).parent)
LIBRARIES = tuple(
    path for key in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(key))
)


def failed(error: BaseException, rank: int, step: int) -> Finding:
    """Make the finding of a rank that raised."""
    text = "".join(traceback.format_exception(error))
    label = labels.of(error)
    if label is not None:
        text += f"raised within: {label}\n"
    file, line = place(error.__traceback__)
    said = " ".join(str(error).split())
    return Finding(
        kind="RankFailed",
        severity="critical",
        step=step,
        rank=rank,
        ranks=(rank,),
        file=file,
        line=line,
        label=label,
        message=f"{type(error).__name__}: {said:.500} (exit code 1)",
        evidence={"exit_code": 1, "traceback": cut(text), "local": not of_a_peer(error)},
    )


def of_a_peer(error: BaseException) -> bool:
    """Whether a collective failed because another rank is gone: then the fault began there."""
    if type(error).__name__ in {"DistBackendError", "DistNetworkError"}:
        return True
    text = str(error)
    return "gloo" in text and any(sign in text for sign in LOST_PEER)


def cut(text: str) -> str:
    """Keep the end of a text that is too long."""
    whole = text.encode(errors="replace")
    return whole[-LONGEST:].decode(errors="ignore")


def place(trace: TracebackType | None) -> tuple[str | None, int | None]:
    """Return the last line that is the user's own: not in a library, nor in this package."""
    found: tuple[str | None, int | None] = (None, None)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((*LIBRARIES, OURS, "<")) and "site-packages" not in file:
            found = (file, trace.tb_lineno)
        trace = trace.tb_next
    return found


def strip(error: BaseException) -> None:
    """Take this package's frames out of an exception and of those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = without_us(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def without_us(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without this package's frames: what is shown is as if it was not there."""
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(OURS):
            frames.append(trace)
        trace = trace.tb_next
    rebuilt = None
    for frame in reversed(frames):
        rebuilt = TracebackType(rebuilt, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rebuilt


def last_exception() -> BaseException | None:
    """Return the uncaught exception that the interpreter ends by, if it does."""
    found = getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None
