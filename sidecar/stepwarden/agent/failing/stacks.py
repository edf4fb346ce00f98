"""The stack of a thread, seen from another thread of the process."""

import threading
from types import FrameType

from stepwarden.agent.pulse import stack
from stepwarden.agent.pulse.stillness import frame_of


def innermost(thread: threading.Thread) -> FrameType | None:
    """Return the innermost frame of a thread that is not this package's; None where it has ended."""
    frame = frame_of(thread.ident or 0)
    while frame is not None and stack.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def of(thread: threading.Thread) -> str:
    """Put a thread's stack as Python prints it, the innermost call last, without this package's calls."""
    return stack.text(stack.frames(innermost(thread))).rstrip()
