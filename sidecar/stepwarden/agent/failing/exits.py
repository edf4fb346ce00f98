"""
The two ways in which a program ends its process by a call: `sys.exit`, which may be caught, and `os._exit`.

`raise SystemExit(n)` and `exit(n)` pass by here unseen; their code is what the launcher tells of them.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from stepwarden.agent.hooks.replacing import replace_attribute


class Exits:
    """Both, wrapped. `left` is told of an `os._exit` before it happens; `step` says how far the rank is."""

    def __init__(self, left: Callable[[int, FrameType], object], step: Callable[[], int]) -> None:
        """Begin with none seen."""
        self.left, self.step = left, step
        self.process = os.getpid()
        self.leaving: SystemExit | None = None
        self.at = -1

    def install(self) -> list[Callable[[], object]]:
        """Wrap them; return what takes the wrappers off."""
        return [replace_attribute(sys, "exit", self.of_sys), replace_attribute(os, "_exit", self.of_os)]

    def of_sys(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `sys.exit`: keep the exception that it raises in the main thread."""

        def leave(*status: Any) -> Any:
            try:
                original(*status)
            except SystemExit as error:
                if threading.current_thread() is threading.main_thread() and os.getpid() == self.process:
                    self.leaving, self.at = error, self.step()
                raise

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
        if self.leaving is not None and self.step() > self.at:
            self.leaving = None

    def uncaught(self) -> SystemExit | None:
        """
        Return the `sys.exit` that the interpreter ends by, with a code other than 0.

        If the user's code has caught it, its traceback ends within the program, or the outermost frame
        has gone on since.
        """
        self.forget()
        error, self.leaving = self.leaving, None
        trace = error.__traceback__ if error is not None else None
        if error is None or trace is None or code(error.code) == 0:
            return None
        outermost = trace.tb_frame
        went_on = outermost.f_back is not None or outermost.f_lasti != trace.tb_lasti
        return None if went_on else error


def code(status: object) -> int:
    """Return the exit code that Python makes of what `sys.exit` was given."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1
