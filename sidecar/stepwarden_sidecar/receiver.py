"""The unix datagram socket at which ranks speak and are told their orders. Decides nothing."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepwarden.wire import MAX_DATAGRAM, SIDECAR_SOCKET, Message, Orders, from_line, rank_socket, to_line

BATCH = 256  # datagrams read before anything else gets its turn
BUFFER = 4 * 1024 * 1024  # asked for; the kernel gives what its limit allows
MODE = 0o666  # ranks may run under another user


class Receiver:
    """Reads what ranks say in batches; what is no message is counted, and passed over."""

    def __init__(
        self, directory: Path, take: Callable[[list[Message]], None], garbled: Callable[[], None]
    ) -> None:
        self.directory, self.take, self.garbled = directory, take, garbled
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def open(self) -> None:
        """Bind the socket, in the place of one that a killed sidecar left. Raises `OSError`."""
        path = self.directory / SIDECAR_SOCKET
        path.unlink(missing_ok=True)
        self.socket.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.socket.bind(str(path))
        path.chmod(MODE)
        asyncio.get_running_loop().add_reader(self.socket, self.read)

    def close(self) -> None:
        """Stop reading; the ranks' datagrams are refused from here on."""
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()

    def read(self) -> None:
        """Read what has come, and hand it on as one batch."""
        messages = []
        with suppress(BlockingIOError, InterruptedError):
            for _ in range(BATCH):
                datagram = self.socket.recv(MAX_DATAGRAM + 1)
                message = parse(datagram)
                if message is None:
                    self.garbled()
                else:
                    messages.append(message)
        if messages:
            self.take(messages)

    def tell(self, rank: int, orders: Orders) -> bool:
        """Send a rank its orders; False where it could not be reached now."""
        try:
            self.socket.sendto(to_line(orders).encode(), str(self.directory / rank_socket(rank)))
        except OSError:  # gone, not there yet, or its buffer is full: it is told again soon
            return False
        return True


def parse(datagram: bytes) -> Message | None:
    """Read one datagram; None where it is too long or no message."""
    if len(datagram) > MAX_DATAGRAM:
        return None
    try:
        return from_line(datagram)
    except ValueError:
        return None
