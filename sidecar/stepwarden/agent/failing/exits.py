"""
How a program ends its process by a call: `sys.exit`, `exit` and `quit`, which may be caught, and `os._exit`.

`raise SystemExit(n)` passes by here unseen; its code is what the launcher tells of it.
"""

import builtins
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from opcode import opmap
from types import FrameType
from typing import Any

from stepwarden.agent.failing import frames
from stepwarden.agent.hooks.replacing import replace_attribute

OF_SITE = ("exit", "quit")  # builtins that Python's site module adds, for a person at a terminal
RERAISE = bytes([opmap["RERAISE"]])
RAISE_AGAIN = bytes([opmap["RAISE_VARARGS"], 0])


@dataclass(frozen=True, slots=True)
class Leaving:
    """
    A `sys.exit`, or its like, under way.

    `status` is what it was given, `calls` are those that led to it, `at` is where the outermost one was.
    """

    name: str
    status: object
    calls: frames.Frames
    at: int

    @property
    def went_on(self) -> bool:
        """
        Whether the outermost call has gone on since: the user's code has caught the exception.

        If that call had only something to do on the way, as in `finally`, it has raised it again.
        """
        outermost = self.calls[0][0]
        last = outermost.f_code.co_code[outermost.f_lasti : outermost.f_lasti + 2]
        raised = last[:1] == RERAISE or last == RAISE_AGAIN
        return outermost.f_lasti != self.at and not raised


class Exits:
    """All of them, wrapped. `left` is told of an `os._exit` before it happens, `step` counts the steps."""

    def __init__(self, left: Callable[[int, FrameType], object], step: Callable[[], int]) -> None:
        """Begin with none seen."""
        self.left, self.step = left, step
        self.process = os.getpid()
        self.leaving: Leaving | None = None
        self.then = -1

    def install(self) -> list[Callable[[], object]]:
        """Wrap them; return what takes the wrappers off."""
        found = [name for name in OF_SITE if hasattr(builtins, name)]
        return [
            replace_attribute(sys, "exit", partial(self.raising, "sys.exit")),
            *(replace_attribute(builtins, name, partial(self.raising, name)) for name in found),
            replace_attribute(os, "_exit", self.of_os),
        ]

    def raising(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `sys.exit`, or its like: note the calls that led to it in the main thread."""

        def leave(*status: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and os.getpid() == self.process:
                calls = frames.below(sys._getframe(1))  # noqa: SLF001 - the caller's place
                given = next(iter((*status, *named.values())), None)  # exit(code=3)
                self.leaving = Leaving(name, given, calls, calls[0][0].f_lasti)
                self.then = self.step()
            return original(*status, **named)

        return leave

    def of_os(self, original: Callable[[int], Any]) -> Callable[[int], Any]:
        """Wrap `os._exit`; of a child process it is left alone."""

        def leave(status: int) -> Any:
            if os.getpid() == self.process and isinstance(status, int):
                self.left(status & 0xFF, sys._getframe(1))  # noqa: SLF001 - the caller's place
            return original(status)

        return leave

    def forget(self) -> None:
        """Let go of an exit that was caught: the rank has taken a step since."""
        if self.leaving is not None and self.step() > self.then:
            self.leaving = None

    def uncaught(self) -> Leaving | None:
        """Return the `sys.exit`, or its like, that the interpreter ends by, with a code other than 0."""
        self.forget()
        leaving, self.leaving = self.leaving, None
        if leaving is None or leaving.went_on or code(leaving.status) == 0:
            return None
        return leaving


def code(status: object) -> int:
    """Return the exit code that Python makes of what `sys.exit` was given."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
