"""Commands, waiting, and what is said meanwhile: progress on stderr, results on stdout."""

import contextlib
import fcntl
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from settings import ClusterError, Paths


def say(message: str) -> None:
    """Progress, on stderr."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long a step took, once it has succeeded."""
    begin = time.monotonic()
    yield
    say(f"  {what:<28}{time.monotonic() - begin:7.2f} s")


def run(argv: Sequence[str | Path], *, text: str | None = None, check: bool = True) -> str:
    """Run a command and return its stdout; a failure carries its stderr."""
    words = [str(word) for word in argv]
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise ClusterError(f"{shlex.join(words)} exited {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def wait_for(
    what: str, ready: Callable[[], bool], timeout: float, alive: Callable[[], None] = lambda: None
) -> None:
    """Poll until `ready` holds; `alive` raises if waiting has become pointless."""
    end = time.monotonic() + timeout
    while not ready():
        alive()
        if time.monotonic() > end:
            raise ClusterError(f"{what}: not ready after {timeout:.0f} s; see `logs`")
        time.sleep(0.1)


@contextlib.contextmanager
def lock(at: Paths, what: str = "cluster") -> Iterator[None]:
    """One command at a time changes the cluster, and one the images."""
    at.dir.mkdir(parents=True, exist_ok=True)
    with (at.dir / f"{what}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command on {at.dir}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def http_ok(address: str, path: str) -> bool:
    """Whether a plain GET is answered 200, without the proxies that the environment may name."""
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as link:
        link.sendall(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        return b" 200 " in link.recv(64)
    return False


def kubectl(at: Paths, *args: str) -> str:
    """Ask the cluster with its own kubectl."""
    return run([at.bin / "kubectl", "--kubeconfig", at.kubeconfig, *args])


def answers(at: Paths, *args: str, expect: str = "") -> bool:
    """Whether a kubectl command succeeds and prints what is expected."""
    argv = [str(at.bin / "kubectl"), "--kubeconfig", str(at.kubeconfig), *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode == 0 and expect in done.stdout
