"""The agent's lines on stderr: few, each begins with the project's name, none may fail."""

import contextlib
import sys


def say(message: str) -> None:
    """Write one line to stderr, if there is one that takes it."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"stepwarden: {message}\n")
        sys.stderr.flush()
