"""
The connections that gloo has made between ranks, so that they can be shut: gloo itself can't be aborted.

Those are the TCP connections that came about while a group of gloo was being made, in its constructor.
Another thread may have connected to somewhere meanwhile; so a connection to the rendezvous' store is left
out, and so is one with an end at a port of a service: kernels give gloo higher ones.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from stepwarden.agent.hooks.replacing import replace_attribute

EPHEMERAL = 10_000  # below are ports of services: kernels begin at 32768, administrators lower
FILES = Path("/proc/self/fd")


class Sockets:
    """The inodes of gloo's connections in this process."""

    def __init__(self) -> None:
        """Begin with none."""
        self.made: set[int] = set()

    def install(self) -> Callable[[], object]:
        """Follow the making of groups; return what ends that."""
        cls = getattr(torch.distributed, "ProcessGroupGloo", None)
        return replace_attribute(cls, "__init__", self.wrap) if cls is not None else lambda: None

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a group's constructor."""

        def construct(group: Any, *args: Any, **kwargs: Any) -> None:
            with suppress(Exception):
                before = set(connections())
            try:
                original(group, *args, **kwargs)
            finally:
                with suppress(Exception):
                    barred = store_ports(args)
                    new = {inode: ports for inode, ports in connections().items() if inode not in before}
                    self.made |= {inode for inode, ports in new.items() if is_between_ranks(ports, barred)}

        return construct

    def shut(self) -> int:
        """End both directions of each connection that is still open; return how many there were."""
        count = 0
        for inode, one in opened():
            if inode in self.made:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                    count += 1
        return count


def is_between_ranks(ports: tuple[int, int], barred: set[int]) -> bool:
    """Whether a new connection with these ports is gloo's."""
    return min(ports) >= EPHEMERAL and not barred & set(ports)


def connections() -> dict[int, tuple[int, int]]:
    """Return this process' TCP connections: inode, own port and peer's."""
    found = {}
    for inode, one in opened():
        with suppress(OSError):  # not connected, or not any more
            found[inode] = (one.getsockname()[1], one.getpeername()[1])
    return found


def opened() -> Iterator[tuple[int, socket.socket]]:
    """Yield this process' TCP sockets with their inodes, each for the moment only."""
    for name in os.listdir(FILES):  # noqa: PTH208 - names are all that is needed
        with suppress(OSError), duplicate(int(name)) as (inode, one):
            if one.type == socket.SOCK_STREAM and one.family in {socket.AF_INET, socket.AF_INET6}:
                yield inode, one


@contextmanager
def duplicate(descriptor: int) -> Iterator[tuple[int, socket.socket]]:
    """Open a socket a second time, so that whoever closes the first one meanwhile does no harm."""
    copy = os.dup(descriptor)
    try:
        status = os.fstat(copy)
        one = socket.socket(fileno=copy)  # raises where it is none
    except OSError:
        os.close(copy)
        raise
    with one:
        yield status.st_ino, one


def store_ports(args: tuple[Any, ...]) -> set[int]:
    """Return the ports of the store that a group meets through: of its prefix stores' innermost one."""
    ports = {int(port) for port in (os.environ.get("MASTER_PORT", ""),) if port.isdecimal()}
    store = args[0] if args else None
    while store is not None:
        port = getattr(store, "port", None)
        if isinstance(port, int):
            ports.add(port)
        store = getattr(store, "underlying_store", None)
    return ports
