"""The agent's lines on stderr: few, each begins with the project's name, none may fail."""

import contextlib
import io
import sys


def say(message: str) -> None:
    """Write one line to stderr, if there is one: what is gathered in memory would die with the process."""
    with contextlib.suppress(Exception):
        stderr = sys.__stderr__ if isinstance(sys.stderr, io.StringIO) else sys.stderr
        if stderr is not None:
            print(f"stepwarden: {message}", file=stderr, flush=True)
