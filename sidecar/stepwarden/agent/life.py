"""
The lifeline: a connection to the sidecar that the kernel closes when the process ends, however it ends.

It says once what the rank is, and is silent from then on. A sidecar that was started anew is connected to
again.
"""

import socket
from contextlib import suppress
from pathlib import Path

from stepwarden import wire


class Life:
    """A rank's connection; nothing of it raises."""

    def __init__(self, directory: str) -> None:
        """Begin unconnected."""
        self.path = str(Path(directory) / wire.LIFE_SOCKET)
        self.socket: socket.socket | None = None

    def keep(self, state: wire.RankState) -> None:
        """Connect, where there is no connection, and say what the rank is."""
        if self.socket is not None and not self.is_closed(self.socket):
            return
        self.close()
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        one.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            one.connect(self.path)
            one.sendall(wire.to_line(state).encode() + b"\n")
        except OSError:  # no sidecar now, or one without lifelines
            one.close()
        else:
            self.socket = one

    @staticmethod
    def is_closed(one: socket.socket) -> bool:
        """Whether the other side is gone."""
        try:
            return one.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def say(self, state: wire.RankState) -> None:
        """Say what the rank is now, where there is a connection."""
        if self.socket is not None:
            with suppress(OSError):
                self.socket.sendall(wire.to_line(state).encode() + b"\n")

    def close(self) -> None:
        """Close this process' end."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None
