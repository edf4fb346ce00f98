"""
The stream socket that each rank keeps open for as long as it lives, and at which launchers tell of ends.

A rank says its RankState in one line and keeps the connection; when the process ends, however it ends,
the kernel closes it. A launcher says a RankExit a line, and is answered `told` for each: once the living
ranks of this pod have been told why that process ended, so that it may end them next. Decides nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepwarden.pulse import RankExit
from stepwarden.wire import LIFE_SOCKET, Finding, Message, RankState, from_line
from stepwarden_sidecar import deaths
from stepwarden_sidecar.deaths import Deaths
from stepwarden_sidecar.ranks import LIVE, Rank
from stepwarden_sidecar.sidecar import Sidecar

LINE = 64 * 1024  # bytes of a line
MODE = 0o666  # ranks may run under another user
BACKLOG = 1024
PATIENCE = 1.5  # seconds that a launcher waits for its answer at most
PRINTING = 1.0  # seconds in which a rank that lives has printed what it was told, and says so
LOOK = 0.02  # seconds between two looks at who has been told
CRASH = 64 * 1024  # bytes of a crash file that are read


class Lives:
    """The listener. `drain` reads what ranks have said in datagrams, so that last words count first."""

    def __init__(self, sidecar: Sidecar, drain: Callable[[], None] = lambda: None) -> None:
        self.sidecar, self.drain = sidecar, drain
        self.directory = sidecar.settings.directory
        self.deaths = Deaths()
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen, in the place of a killed sidecar. Raises `OSError`."""
        path = self.directory / LIFE_SOCKET
        path.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self.serve, path, limit=LINE, backlog=BACKLOG)
        path.chmod(MODE)

    def close(self) -> None:
        """Stop listening; that the connections close now says nothing of the ranks."""
        if self.server:
            self.server.close()

    def hear(self, messages: list[Message]) -> None:
        """Take in a batch of datagrams: launchers' words last, as what a process said itself counts first."""
        ends = [message for message in messages if isinstance(message, RankExit)]
        if len(ends) < len(messages):
            self.sidecar.take(message for message in messages if not isinstance(message, RankExit))
        for each in ends:
            self.exited(each)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one rank until it ends, or one launcher."""
        pid = 0
        try:
            with suppress(OSError, ValueError):  # the second: a line that is too long
                while line := await reader.readline():
                    message = self.read(line)
                    if isinstance(message, RankExit):
                        await self.answer(message, writer)
                    elif isinstance(message, RankState):
                        pid = message.pid
                        self.lives(message)
        finally:
            writer.close()
        if pid and not self.sidecar.closing:
            self.lost(pid)

    def read(self, line: bytes) -> Message | None:
        """Read a line; None, and counted, where it is no message."""
        try:
            return from_line(line)
        except ValueError:
            self.sidecar.garbled()
            return None

    async def answer(self, said: RankExit, writer: asyncio.StreamWriter) -> None:
        """Take in an end, and answer once it was told."""
        self.exited(said)
        end = self.sidecar.clock() + PATIENCE
        while not said.asked and not self.is_told(said.pid) and self.sidecar.clock() < end:
            await self.sidecar.changed.wait(LOOK, self.sidecar.changed.count)
        writer.write(b"told\n")
        await writer.drain()

    def is_told(self, pid: int) -> bool:
        """Whether every living rank has printed why another one failed; a stranger's end is not told."""
        if self.rank_of(pid) is None:
            return True
        return all(map(self.has_printed, (rank for rank in self.sidecar.ranks if rank.state in LIVE)))

    def has_printed(self, rank: Rank) -> bool:
        """Whether a rank was told of a failure, and has said a word or had its time since."""
        orders, when = self.sidecar.told.get((rank.rank, rank.pid), (None, 0.0))
        told = orders is not None and any(each.severity == "critical" for each in orders.told)
        return told and (rank.heard > when or self.sidecar.clock() >= when + PRINTING)

    def lives(self, state: RankState) -> None:
        """Take in that a rank is connected, for the first time or again."""
        self.deaths.gone.pop(state.pid, None)
        self.sidecar.take([state])
        rank = self.rank_of(state.pid)
        if rank is not None:
            rank.dead = False

    def lost(self, pid: int) -> None:
        """Take in that a process' lifeline is closed."""
        rank = self.rank_of(pid)
        if rank is not None:
            rank.dead = True
        self.deaths.lost(pid, self.sidecar.clock())
        self.judge()
        asyncio.get_running_loop().call_later(deaths.WORD, self.judge)

    def exited(self, said: RankExit) -> None:
        """Take in how a process ended."""
        self.deaths.exited(said, self.sidecar.clock())
        self.judge()

    def finish(self) -> None:
        """Say of the ranks that died what is known by now: a pod's sidecar ends soon after its trainer."""
        self.judge(float("inf"))

    def judge(self, now: float | None = None) -> None:
        """Say of the ranks that died how they did, unless they had said it themselves."""
        if self.sidecar.closing:
            return
        for death in self.deaths.due(self.sidecar.clock() if now is None else now):
            self.drain()
            rank = self.rank_of(death.pid)
            if rank is not None and deaths.is_news(rank.state, death.exit):
                self.sidecar.gone(rank, self.finding(rank, death.exit))

    def finding(self, rank: Rank, said: RankExit | None) -> Finding | None:
        """Say how a rank died; None where it was only asked to end, or left by `os._exit(0)`."""
        if said is not None and (said.asked or said.code == 0):
            return None
        crash, step = read(self.directory / f"rank-{rank.rank}.crash"), rank.step + 1
        seen = rank.pulse if rank.pulse and rank.pulse.step == step else None
        before = deaths.Before(rank.reason, seen, self.sidecar.clock() - rank.seen)
        return deaths.finding(rank.rank, step, rank.pid, said, crash, before)

    def rank_of(self, pid: int) -> Rank | None:
        """Return the rank whose process this is."""
        return next((rank for rank in self.sidecar.ranks if rank.pid == pid), None)


def read(path: Path) -> str:
    """Read what faulthandler left; empty where it left nothing."""
    try:
        with path.open("rb") as file:
            return file.read(CRASH).decode(errors="replace")
    except OSError:
        return ""
