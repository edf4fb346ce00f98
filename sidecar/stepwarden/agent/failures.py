"""What the end of a rank becomes that its own process tells of: a finding with its whole traceback."""

import sys
import traceback
from types import TracebackType

from stepwarden.agent.failing import origins, tensors
from stepwarden.agent.failing.frames import Frames, within
from stepwarden.agent.hooks import labels
from stepwarden.agent.pulse import stack
from stepwarden.failure import rank_failed
from stepwarden.wire import Finding

LONGEST = 16 * 1024  # bytes of a traceback that cross the wire; its end says most


def failed(error: BaseException, rank: int, step: int) -> Finding:
    """Make the finding of a rank that raised."""
    text = "".join(traceback.format_exception(error))
    label = labels.of(error)
    if label is not None:
        text += f"raised within: {label}\n"
    chain = list(origins.chain(error))[::-1]
    frames = [each for one in chain for each in within(one.__traceback__)]
    return rank_failed(
        rank,
        step,
        f"{type(error).__name__}: {said(error):.500} (exit code 1)",
        place=place(error),
        label=label,
        evidence={
            "exit_code": 1,
            "traceback": cut(text),
            "local": not origins.of_a_peer(error),
            **shapes(frames),
        },
    )


def left(how: str, code: int, frames: Frames, rank: int, step: int) -> Finding:
    """Make the finding of a rank whose program ended it by a call, `how`, which these frames led to."""
    theirs = [each for each in frames if not stack.is_ours(each[0].f_code.co_filename)]
    summary = traceback.StackSummary.extract(iter(theirs))
    return rank_failed(
        rank,
        step,
        f"the program ended itself by {how} (exit code {code})",
        place=stack.last_users(lines(theirs)),
        evidence={
            "exit_code": code,
            "traceback": cut("Stack (most recent call last):\n" + "".join(summary.format())),
            "local": True,
            **shapes(theirs),
        },
    )


def said(error: BaseException) -> str:
    """Return an exception's message in one line; of a traceback in it only what it ends by."""
    text = str(error)
    if origins.BEGIN in text:
        text = f"{text.partition(chr(10))[0]} {origins.last_words(text)}"
    return " ".join(text.split())


def shapes(frames: Frames) -> dict[str, dict[str, dict[str, str]]]:
    """Return the evidence on tensors, if there were any."""
    found = tensors.look(frames, stack.is_users)
    return {"tensors": found} if found else {}


def cut(text: str) -> str:
    """Keep the end of a text that is too long."""
    whole = text.encode(errors="replace")
    return whole[-LONGEST:].decode(errors="ignore")


def place(error: BaseException) -> tuple[str | None, int | None]:
    """Return the last line that is the user's own, of the process that the exception comes from."""
    file, line = stack.last_users(origins.frames(origins.remote(error)))
    if file is not None:
        return file, line
    return stack.last_users(lines(within(error.__traceback__)))


def lines(frames: Frames) -> list[tuple[str, int]]:
    """Return the files and lines of calls."""
    return [(frame.f_code.co_filename, number) for frame, number in frames]


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
        if not stack.is_ours(trace.tb_frame.f_code.co_filename):
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
