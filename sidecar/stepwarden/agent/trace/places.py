"""Where in the user's code an operator was called, and where gradients were switched off around it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stepwarden.agent.hooks.losses import OURS, TORCH, caller
from stepwarden.probes.cut import COLLECTIVES

if TYPE_CHECKING:
    from types import CodeType, FrameType

Place = tuple[str, int]
CALLERS = 4  # functions through which a number is followed


class Switch:
    """The last time that gradients were switched off: the user's line, and the frame whose block it is."""

    def __init__(self) -> None:
        """Begin with gradients on."""
        self.place: Place | None = None
        self.frame: tuple[int, CodeType] | None = None

    def turned(self, *, on: bool) -> None:
        """Note where gradients are switched on or off. Nothing of the frame is kept alive."""
        if not on and self.frame is not None:
            return  # the end of a block within another one
        self.place = self.frame = None
        if on:
            return
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the cheap way to the caller's line
        self.place = caller(frame)
        while frame is not None and inner(frame) and not decorates(frame):
            frame = frame.f_back
        self.frame = (id(frame), frame.f_code) if frame is not None else None

    def entered(self, frame: FrameType | None) -> Place | None:
        """Return the line to change: of a `with` block, or the one that runs in a decorated function."""
        last: Place | None = None
        while frame is not None and self.frame is not None:
            if (id(frame), frame.f_code) == self.frame:
                return last if inner(frame) else self.place
            if not inner(frame):
                last = (frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return None


def as_called(name: str, frame: FrameType | None) -> str:
    """Return a collective's name as the user's code has it: torch calls some of them by newer ones."""
    if not name.startswith(COLLECTIVES):
        return name
    while frame is not None and inner(frame):
        if frame.f_code.co_name.startswith(COLLECTIVES):
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def callers(frame: FrameType | None) -> tuple[Place, ...]:
    """Return the user's lines that led here, but for the nearest one, nearest first."""
    found: list[Place] = []
    while frame is not None and len(found) <= CALLERS:
        if not inner(frame):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found[1:])


def inner(frame: FrameType) -> bool:
    """Whether a frame is torch's or this package's."""
    return frame.f_code.co_filename.startswith((TORCH, OURS))


def decorates(frame: FrameType) -> bool:
    """Whether a frame is the wrapper that a decorator such as `@torch.no_grad()` makes."""
    return frame.f_code.co_filename.endswith("_contextlib.py")
