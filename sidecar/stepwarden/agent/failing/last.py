"""
The very end of a rank that failed, or that lost one that did: it is gone when the grace period is.

When a program and its exit functions are done, Python takes down all that is left. With torch that is a
second or more of the processor for each rank, and lasts for ever where a destructor waits for a rank that
is gone. It has what is left of the grace period. Then a thread of faulthandler's, which needs no
interpreter, ends the process, with the code that it would have had: that of an uncaught exception, 1.
"""

import atexit
import ctypes
import faulthandler
import gc
import io
import os
import time
from contextlib import suppress

LEAST = 0.5  # seconds that it has in any case
WRITING = 5.0  # seconds more for what is not written yet: a pipe may have a reader that is gone too
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
            end_in(WRITING + max(LEAST, self.due - time.monotonic()))
            flush()
            end_in(max(LEAST, self.due - time.monotonic()))


def end_in(seconds: float) -> None:
    """End this process in so many seconds from now, whatever it was to be before."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.open(os.devnull, os.O_WRONLY))


def flush() -> None:
    """Write out what any open file of this process keeps, C's own too."""
    gc.unfreeze()  # what is frozen is not listed
    for each in gc.get_objects():
        if issubclass(type(each), WRITERS):  # by its type: an object may make of `__class__` what it likes
            with suppress(Exception):
                each.flush()
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)


LAST = Last()


def start() -> None:
    """Run behind all exit functions: those that are registered first run last."""
    atexit.register(LAST.begin)
