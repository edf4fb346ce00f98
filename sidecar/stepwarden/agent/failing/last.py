"""
The very end of a rank that failed, or that lost one that did: it is gone when the grace period is.

When a program and its exit functions are done, Python takes down all that is left. With torch that is a
second or more of the processor for each rank, and lasts for ever where a destructor waits for a rank that
is gone. It has what is left of the grace period. Then a thread of faulthandler's, which needs no
interpreter, ends the process, with the code that it would have had: that of an uncaught exception, 1.
"""

import atexit
import faulthandler
import gc
import io
import os
import time
from contextlib import suppress

LEAST = 0.5  # seconds that it has in any case
WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


class Last:
    """When this process is to be gone, `due` by the monotonic clock; None while there is no such time."""

    def __init__(self) -> None:
        """Begin without a limit, for this process and none that it forks."""
        self.due: float | None = None
        self.process = os.getpid()

    def begin(self) -> None:
        """Begin the countdown, where there is one: what files still keep in memory is written before."""
        if self.due is None or os.getpid() != self.process:
            return
        with suppress(Exception):
            flush()
            left = max(LEAST, self.due - time.monotonic())
            nowhere = os.open(os.devnull, os.O_WRONLY)
            faulthandler.dump_traceback_later(left, exit=True, file=nowhere)


def flush() -> None:
    """Write out what any open file of this process keeps."""
    for each in gc.get_objects():
        if issubclass(type(each), WRITERS):  # by its type: an object may make of `__class__` what it likes
            with suppress(Exception):
                each.flush()


LAST = Last()


def start() -> None:
    """Run behind all exit functions: those that are registered first run last."""
    atexit.register(LAST.begin)
