"""The terminal, if there is one: whether a person can be asked, and what they typed."""

import os
import select
import sys
import termios
from contextlib import suppress

from stepwarden.cli.course import Answer

KEYS: dict[str, Answer] = {"s": "skip", "a": "apply", "q": "stop"}
STDIN = 0


def interactive() -> bool:
    """Whether a person sees stderr and can type, with this process in the foreground."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty() and foreground(STDIN)
    except (OSError, ValueError, AttributeError):
        return False


def foreground(descriptor: int) -> bool:
    """Whether a terminal's keys, Ctrl-C among them, reach this process' group."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def reaches_children() -> bool:
    """Whether a SIGINT comes from a terminal that has sent it to the ranks' group as well."""
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return foreground(descriptor)
    finally:
        os.close(descriptor)


def forget_typed() -> None:
    """Drop what was typed before the question."""
    with suppress(termios.error, OSError):
        termios.tcflush(STDIN, termios.TCIFLUSH)


def answer() -> Answer | None:
    """Return what was typed, if it is an answer; never waits."""
    if not foreground(STDIN) or not select.select([STDIN], [], [], 0)[0]:
        return None
    with suppress(OSError):
        return KEYS.get(os.read(STDIN, 1024).decode(errors="replace").strip().lower()[:1])
    return None
