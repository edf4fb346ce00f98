"""The components' processes. A process is known by its pid and its start time, never by a name."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from settings import ClusterError, Paths

STATE, PARENT, STARTED = 0, 1, 19  # fields of /proc/PID/stat after the command's name


@dataclass(frozen=True, slots=True)
class Component:
    """One long-running process: how to start it and which ports it must find free."""

    name: str
    argv: list[str]
    ports: tuple[tuple[str, int], ...] = ()


def stat(pid: int) -> list[str] | None:
    """Read the state of a live process; None where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if not fields or fields[STATE] in "ZX" else fields


def start_time(pid: int) -> int | None:
    """Read the kernel's start time of a live process: with the pid it names that process only."""
    fields = stat(pid)
    return int(fields[STARTED]) if fields else None


def pids() -> list[int]:
    """Everything alive."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def descendants(roots: Iterable[int]) -> set[int]:
    """All live descendants of the roots, the roots left out."""
    parent = {pid: int(fields[PARENT]) for pid in pids() if (fields := stat(pid))}
    tree = set(roots)
    while new := {pid for pid, up in parent.items() if up in tree and pid not in tree}:
        tree |= new
    return tree - set(roots)


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def record(at: Paths, name: str) -> Path:
    """Name the file that says which process a component is."""
    return at.run / "pids" / name


def pid_of(at: Paths, name: str) -> int | None:
    """Find the component's pid if that very process is alive."""
    try:
        pid, begun = map(int, record(at, name).read_text().split())
    except (OSError, ValueError):
        return None
    return pid if start_time(pid) == begun else None


def recorded(at: Paths) -> list[str]:
    """Names of the components that `up` has started, dead or alive."""
    folder = at.run / "pids"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def start(at: Paths, component: Component) -> None:
    """Start a component in its own session unless it runs."""
    if pid_of(at, component.name):
        return
    for host, port in component.ports:
        require_free(component.name, host, port)
    at.logs.mkdir(exist_ok=True)
    record(at, component.name).parent.mkdir(parents=True, exist_ok=True)
    with (at.logs / f"{component.name}.log").open("a") as log:
        process = subprocess.Popen(
            component.argv,
            cwd=at.run,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record(at, component.name).write_text(f"{process.pid} {start_time(process.pid) or 0}\n")


def require_free(name: str, host: str, port: int) -> None:
    """Raise where another process has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ClusterError(f"{name} needs {host}:{port}: {error.strerror}") from None


def require_alive(at: Paths) -> None:
    """Raise if a component that was started has ended."""
    for name in recorded(at):
        if not pid_of(at, name):
            raise ClusterError(f"{name} has ended; its last lines:\n{log_tail(at, name, 5)}")


def log_tail(at: Paths, name: str, lines: int) -> str:
    """Read the last lines of a component's log."""
    path = at.logs / f"{name}.log"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""
