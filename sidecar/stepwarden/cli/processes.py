"""
The processes of a run: started so that they end with it, and swept up when it ends.

On Linux this process adopts the orphans among its descendants, so that a rank whose torchrun was
killed is still found. Elsewhere only the processes that it started itself are.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL = 0.05  # seconds

Process: TypeAlias = "subprocess.Popen[bytes]"

libc = ctypes.CDLL(None) if LINUX else None


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    if libc:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """Return what a child calls before its program starts, to get a signal when this process ends."""
    if not libc:
        return None
    prctl, value = libc.prctl, int(number)
    return lambda: prctl(PR_SET_PDEATHSIG, value, 0, 0, 0)


def start(command: Sequence[str], env: Mapping[str, str], directory: str | None) -> Process:
    """Start a group: it has this process' stdin, stdout and stderr, and its terminal."""
    return subprocess.Popen(  # noqa: S603 - what a person asked to run
        command,
        env=env,
        cwd=directory,
        preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - this process has one thread
    )


def table() -> dict[int, tuple[int, str]]:
    """Return parent and state of each process of this machine, by its id."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError, IndexError):  # it ended just now
                state, parent = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                found[int(path.name)] = (int(parent), state)
    return found


def descendants(processes: Mapping[int, tuple[int, str]], root: int, spared: Iterable[int] = ()) -> set[int]:
    """Return all below a process, without those spared and what is below them."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found, left = set(), [root]
    while left:
        new = set(children.get(left.pop(), ())) - set(spared)
        found |= new
        left += new
    return found


def below(spared: Iterable[int] = ()) -> set[int]:
    """Return this process' living descendants, and take leave of those that ended as adopted ones."""
    if not LINUX:
        return set()
    processes = table()
    own = descendants(processes, os.getpid(), spared)
    return {pid for pid in own if processes[pid][1] != "Z"}


def reap(known: Iterable[int]) -> None:
    """Take leave of adopted processes that have ended; those that have an owner here are left to it."""
    if LINUX:
        for pid, (parent, state) in table().items():
            if parent == os.getpid() and state == "Z" and pid not in set(known):
                with suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal; one that ended meanwhile is no error."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def sweep(spared: Iterable[int], grace: float) -> int:
    """End what is left below this process: SIGTERM, SIGKILL after a while. Return how many there were."""
    spared = tuple(spared)
    left = below(spared)
    if not left:
        return 0
    send(left, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (still := below(spared)) and time.monotonic() < deadline:
        time.sleep(POLL)
    while still:
        send(still, signal.SIGKILL)
        time.sleep(POLL)
        still = below(spared)
    reap(spared)
    return len(left)


def exit_code(returned: int) -> int:
    """Return an exit code as a shell gives it: 128 + N for signal N."""
    return returned if returned >= 0 else 128 - returned
