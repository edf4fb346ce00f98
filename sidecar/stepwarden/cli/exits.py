"""
What this machine's sidecar is told of processes that end: by whoever started them, or is about to end them.

torchrun tells of its own ranks; a rank that runs without it has this process for a launcher.
"""

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stepwarden.pulse import RankExit
from stepwarden.wire import SIDECAR_SOCKET, to_line


def ended(directory: Path, pid: int, code: int) -> None:
    """Say how a process ended; `code` is negative for a signal."""
    say(directory, [RankExit(pid=pid, code=code, time=time.time())])


def ending(directory: Path, pids: Iterable[int], number: int) -> None:
    """Say that these processes end because this run ends them: that is no failure."""
    say(directory, [RankExit(pid=pid, code=-number, time=time.time(), asked=True) for pid in pids])


def say(directory: Path, exits: Iterable[RankExit]) -> None:
    """Send them; a sidecar that is just being started again misses them."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.settimeout(0.1)
        for each in exits:
            line.sendto(to_line(each).encode(), str(directory / SIDECAR_SOCKET))
