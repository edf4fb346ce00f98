"""
The line to the sidecar: unix datagrams that are sent at once or dropped and counted; findings wait a moment.

Each datagram is addressed by path, so a sidecar that was killed and came back is reached again.
"""

import contextlib
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from stepwarden import wire
from stepwarden.attempt import stamped

KEPT_FINDINGS = 64  # that a sidecar could not take yet; more are dropped for good
PATIENCE = 0.2  # seconds that a finding, and the last words of a process, may wait for room


def count(path: Path) -> int:
    """
    Return how many processes had this rank before, in this pod: the file says it, and whose it is now.

    torchrun's own count is that of its node, which other nodes' need not be. Where the disk has no room for
    the file, each process takes itself for the first; one that is there is written over and needs none.
    """
    attempt, pid = 0, os.getpid()
    with contextlib.suppress(OSError, ValueError):
        before, last = map(int, path.read_text(encoding="ascii").split())
        attempt = before if last == pid else before + 1
    with contextlib.suppress(OSError), path.open("r+b" if path.exists() else "wb") as file:
        file.write(f"{attempt:10} {pid:10}\n".encode())
    return attempt


class Link:
    """
    A rank's socket.

    Raises `OSError` at construction where the shared directory doesn't take one.
    """

    def __init__(self, directory: str, rank: int) -> None:
        """Bind this rank's own socket in the shared directory."""
        self.dropped = 0
        self.unsent: deque[wire.Finding] = deque(maxlen=KEPT_FINDINGS)
        self.sidecar = str(Path(directory) / wire.SIDECAR_SOCKET)
        self.own = Path(directory) / wire.rank_socket(rank)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self.own.unlink(missing_ok=True)
            self.socket.bind(str(self.own))
            self.own.chmod(0o666)  # the sidecar may run as another user
            self.attempt = count(Path(directory) / f"rank-{rank}.attempt")
            wait = struct.pack("ll", int(PATIENCE), int(PATIENCE % 1 * 1e6))  # timeval: seconds, microseconds
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        except OSError:
            self.socket.close()
            raise
        self.process = os.getpid()

    def say(self, message: wire.Message, *, patiently: bool = False) -> bool:
        """Send a message; False, and counted, where the sidecar can't take it now, or within `PATIENCE`."""
        flags = 0 if patiently else socket.MSG_DONTWAIT
        if isinstance(message, wire.Finding):
            message = stamped(message, self.attempt)
        try:
            self.socket.sendto(wire.to_line(message).encode(), flags, self.sidecar)
        except (OSError, ValueError):
            self.dropped += 1
            return False
        return True

    def say_finding(self, finding: wire.Finding) -> None:
        """Send a finding, and keep it for the next second where there is no room; one at a time waits."""
        if not self.say(finding, patiently=not self.unsent):
            self.unsent.append(finding)

    def say_again(self) -> None:
        """Send what is kept, in its order."""
        while self.unsent and self.say(self.unsent[0]):
            self.unsent.popleft()

    def say_last(self, *messages: wire.Message) -> None:
        """Send the last words of the process: they may wait a moment for room."""
        for message in (*self.unsent, *messages):
            if not self.say(message, patiently=True):
                return

    def orders(self, seconds: float) -> Iterator[wire.Orders]:
        """Wait up to some seconds for orders, and yield those that came."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        waiting.poll(seconds * 1000)
        with contextlib.suppress(BlockingIOError, TimeoutError, ConnectionError):
            while line := self.socket.recv(wire.MAX_DATAGRAM, socket.MSG_DONTWAIT):
                with contextlib.suppress(ValueError):
                    message = wire.from_line(line)
                    if isinstance(message, wire.Orders):
                        yield message

    def close(self) -> None:
        """Close the socket, and remove its name where it is this process' own."""
        self.socket.close()
        if os.getpid() == self.process:
            self.own.unlink(missing_ok=True)
