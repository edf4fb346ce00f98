"""
The sidecar's open connections: how many there may be, and how long one may take.

A connection on which nobody has shown the token yet is a stranger's. There is room for a few of those, and
the oldest makes room for the next: who knows the token shows it at once. Each has to bring a whole request
in a few seconds, and to take the answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

HEAD = 10.0  # seconds from a request's first byte, or from the connection's begin, to the end of its head
ANSWER = 30.0  # seconds in which a client that reads no more must read on
STRANGERS = 128  # connections, and some more for each rank: all pods may come at once
EACH = 4


class Guarded(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's own protocol, and looks at its clock."""

    def __init__(self, gate: "Gate", inner: Any) -> None:
        self.gate, self.inner = gate, inner
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if there is room."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP's are
        self.transport = transport
        if not self.gate.enter(self):
            transport.abort()
            return
        self.expect(HEAD)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on; what begins a request has a deadline."""
        if not self.busy and self.timer is None:
            self.expect(HEAD)
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on."""
        found: bool | None = self.inner.eof_received()
        return found

    def connection_lost(self, error: Exception | None) -> None:
        """End."""
        self.relax()
        if self.gate.leave(self):
            self.inner.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass on; a client that reads no more has a deadline."""
        self.inner.pause_writing()
        self.expect(ANSWER)

    def resume_writing(self) -> None:
        """Pass on."""
        self.relax()
        self.inner.resume_writing()

    def began(self, *, known: bool) -> None:
        """Take in that a whole head has come; `known`: with the token."""
        self.busy = True
        self.relax()
        if known:
            self.gate.strangers.pop(self, None)

    def ended(self) -> None:
        """Take in that it was answered."""
        self.busy = False

    def expect(self, seconds: float) -> None:
        """Close the connection, unless something happens before that."""
        self.relax()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def relax(self) -> None:
        """Drop the deadline."""
        if self.timer:
            self.timer.cancel()
        self.timer = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport:
            self.transport.abort()


class Gate:
    """All connections, each by the protocol of aiohttp that serves it."""

    def __init__(self, most: int, ranks: int = 0) -> None:
        self.most, self.most_strangers = most, STRANGERS + EACH * ranks
        self.open: dict[Any, Guarded] = {}
        self.strangers: dict[Guarded, None] = {}

    def factory(self, inner: Callable[[], Any]) -> Callable[[], Guarded]:
        """Return what makes the protocol of a new connection."""
        return lambda: Guarded(self, inner())

    def enter(self, guarded: Guarded) -> bool:
        """Let a connection in; False where there are too many."""
        if len(self.open) >= self.most:
            return False
        self.open[guarded.inner] = guarded
        self.strangers[guarded] = None
        if len(self.strangers) > self.most_strangers:
            oldest = next(iter(self.strangers))
            del self.strangers[oldest]
            oldest.abort()
        return True

    def leave(self, guarded: Guarded) -> bool:
        """Let go of a connection; False where it was never let in."""
        self.strangers.pop(guarded, None)
        return self.open.pop(guarded.inner, None) is not None
