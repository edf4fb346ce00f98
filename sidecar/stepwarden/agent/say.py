"""The agent's lines on stderr: few, each begins with the project's name, none may fail."""

import contextlib
import io
import sys


def say(message: str) -> None:
    """
    Write to stderr, if there is one: what is gathered in memory would die with the process.

    It is one write: under `python -u`, as torchrun starts ranks, `print` makes two, and ranks that share a
    log would tear each other's lines.
    """
    with contextlib.suppress(Exception):
        stderr = sys.__stderr__ if isinstance(sys.stderr, io.StringIO) else sys.stderr
        if stderr is not None:
            stderr.write(f"stepwarden: {message}\n")
            stderr.flush()
