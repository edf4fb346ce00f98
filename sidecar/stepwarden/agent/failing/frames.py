"""The calls of a traceback or of a stack, with their lines."""

from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TypeAlias

Frames: TypeAlias = Sequence[tuple[FrameType, int]]  # the innermost last


def within(trace: TracebackType | None) -> Frames:
    """Return the calls of a traceback."""
    found = []
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return found


def below(frame: FrameType | None) -> Frames:
    """Return a call and those that led to it."""
    found = []
    while frame is not None:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]
