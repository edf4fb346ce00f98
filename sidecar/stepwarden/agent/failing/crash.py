"""
A file for the stacks of a rank that a signal ends, as a segmentation fault: the sidecar reads it then.

Python's faulthandler writes it. Where the user's program, its environment or torch's @record has that
enabled, it is theirs: the stacks are then on the rank's own stderr.
"""

import faulthandler
import os
from contextlib import suppress
from pathlib import Path


def name(rank: int) -> str:
    """Return the file's name, below the shared directory."""
    return f"rank-{rank}.crash"


class Crash:
    """The file, empty until a signal ends the rank; `file` is None where faulthandler is another's."""

    def __init__(self, directory: str, rank: int) -> None:
        """Let faulthandler write there. Raises `OSError` where the directory takes no file."""
        self.file = None
        path = Path(directory) / name(rank)
        with suppress(FileNotFoundError):
            path.unlink()  # what another attempt's rank has left
        if faulthandler.is_enabled():
            return
        self.file = path.open("w", encoding="utf-8")
        path.chmod(0o644)  # the sidecar may run as another user
        faulthandler.enable(self.file, all_threads=True)

    def forked(self) -> None:
        """Be silent in a child process: how that ends is not how the rank does."""
        if self.file is not None:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.file.fileno(), inheritable=False)
                os.close(nowhere)

    def detach(self) -> None:
        """Take it off again. What the user has enabled since writes elsewhere, and can't be told apart."""
        if self.file is not None:
            faulthandler.disable()
            self.file.close()
            self.file = None
