"""Our own lines: on stderr, each with its prefix, so that stdout stays the training's own."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress

PREFIX = "stepwarden: "


def say(*lines: str) -> None:
    """Write lines in one piece, so that no rank's come between. A closed stderr is no error."""
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), marked(lines).encode(errors="replace"))


def marked(lines: Iterable[str]) -> str:
    """Put the prefix before each line."""
    return "".join(f"{PREFIX}{line}\n" for text in lines for line in text.split("\n"))
