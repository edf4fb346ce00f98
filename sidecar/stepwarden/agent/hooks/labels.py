"""
The user's own labels: the nested `record_function` blocks of a thread.

`torch.profiler.record_function` is wrapped on the class (the compiler knows the class by itself and
never enters these). The labels that were open where an exception was raised are kept for its finding.
"""

from __future__ import annotations

import threading
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from stepwarden.agent.hooks.replacing import replace_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEPARATOR = " > "


@dataclass(frozen=True)
class Raised:
    """
    Where an exception was raised, by its id and the line that it passed.

    Many take no weak references, and to hold one would hold all its frames.
    """

    error: int
    line: tuple[object, int]
    labels: str

    def means(self, error: BaseException) -> bool:
        """Whether it is this exception, and not a later one with the same id."""
        if id(error) != self.error:
            return False
        lines = traceback.walk_tb(error.__traceback__)
        return any((frame.f_code, number) == self.line for frame, number in lines)


class Labels(threading.local):
    """The labels of one thread: those that are open, and those where an exception was last raised."""

    def __init__(self) -> None:
        """Begin with none; each thread has its own."""
        self.open: list[str] = []
        self.raised: Raised | None = None


OPEN = Labels()


def current() -> str | None:
    """Return the labels that are open in this thread, the outermost first."""
    return SEPARATOR.join(OPEN.open) if OPEN.open else None


def of(error: BaseException) -> str | None:
    """Return the labels that were open where an exception, or one that led to it, was raised."""
    raised = OPEN.raised
    seen: set[int] = set()
    one: BaseException | None = error
    while raised is not None and one is not None and id(one) not in seen:
        if raised.means(one):
            return raised.labels
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return None


@contextmanager
def resumed(labels: tuple[str, ...]) -> Iterator[None]:
    """Let labels be open that were so earlier, and no others, for as long as a replay takes."""
    before, OPEN.open = OPEN.open, list(labels)
    try:
        yield
    finally:
        OPEN.open = before


def entered(name: str) -> None:
    """Note that a block began."""
    OPEN.open.append(name)


def left(name: str, error: object, trace: object) -> None:
    """Note that a block ended, by an exception or without. A block may be left out of order."""
    known = OPEN.raised is not None and isinstance(error, BaseException) and OPEN.raised.means(error)
    if isinstance(error, BaseException) and isinstance(trace, TracebackType) and not known:
        line = (trace.tb_frame.f_code, trace.tb_lineno)
        OPEN.raised = Raised(id(error), line, SEPARATOR.join(OPEN.open))
    for index in reversed(range(len(OPEN.open))):
        if OPEN.open[index] == name:
            del OPEN.open[index]
            break


def install() -> Callable[[], None]:
    """Wrap the blocks' beginning and end; return what undoes it."""
    cls: Any = torch.autograd.profiler.record_function

    def beginning(enter: Callable[..., Any]) -> Callable[..., Any]:
        def entering(self: Any) -> Any:
            outcome = enter(self)
            entered(str(self.name))
            return outcome

        return entering

    def ending(leave: Callable[..., Any]) -> Callable[..., Any]:
        def leaving(self: Any, kind: Any, error: Any, trace: Any) -> Any:
            left(str(self.name), error, trace)
            return leave(self, kind, error, trace)

        return leaving

    put_back = (replace_attribute(cls, "__enter__", beginning), replace_attribute(cls, "__exit__", ending))

    def undo() -> None:
        for each in put_back:
            each()
        OPEN.open, OPEN.raised = [], None

    return undo
