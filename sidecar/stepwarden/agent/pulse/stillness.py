"""For how long a thread has stood still: it has the same stack, and uses no processor."""

import sys
import time
from types import FrameType

DEPTH = 40  # innermost calls that are compared
SHARE = 0.02  # of a processor: a loop that sleeps and looks again stands still, too


class Stillness:
    """Looks at one thread from another one."""

    def __init__(self, thread: int) -> None:
        """Watch the thread of an identity (`threading.get_ident`)."""
        self.thread = thread
        self.events = -1
        self.stack: tuple[tuple[int, int], ...] = ()
        self.since = self.at = self.used = self.gone_on = 0.0

    def look(self, now: float, events: int) -> float:
        """
        Return for how many seconds it has stood still; `events` is a number that changes as it goes on.

        A thread that goes on costs nothing but the comparison of that number.
        """
        if events != self.events:
            self.events, self.stack = events, ()
            self.since = self.at = self.gone_on = now
            return 0.0
        stack, used = identity(frame_of(self.thread)), processor(self.thread)
        busy = used - self.used > SHARE * (now - self.at)
        if stack != self.stack or busy:
            self.since = now
        self.stack, self.used, self.at = stack, used, now
        return now - self.since


def frame_of(thread: int) -> FrameType | None:
    """Return the innermost frame of a thread; None where it has ended."""
    return sys._current_frames().get(thread)  # noqa: SLF001 - the only way to another thread's stack


def identity(frame: FrameType | None) -> tuple[tuple[int, int], ...]:
    """Return what tells one stack from another: which calls, and where in each."""
    found: list[tuple[int, int]] = []
    while frame is not None and len(found) < DEPTH:
        found.append((id(frame), frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def processor(thread: int) -> float:
    """Return the seconds of processor that a thread has used; 0 where the system doesn't tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0.0
