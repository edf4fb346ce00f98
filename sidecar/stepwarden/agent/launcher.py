"""
In torchrun itself: it tells the sidecar how a rank's process ended, and lets the others be told of it.

torchrun sees that a process is gone, and sends the others SIGTERM at once: their logs would end without a
word. What it sees becomes a `ProcessFailure`; making one is the moment. Its waiting is bounded, and
nothing here raises.
"""

import functools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwarden import wire
from stepwarden.agent import importing
from stepwarden.agent.failing import oom
from stepwarden.pulse import RankExit

MODULE = "torch.distributed.elastic.multiprocessing.api"
PATIENCE = 1.5  # seconds that the other ranks have to be told: milliseconds do, but on a busy machine
CONNECT = 0.1  # seconds in which a sidecar that lives takes a connection


def start() -> None:
    """Wait for torchrun to load its part that starts processes. Another program than torchrun never does."""
    launcher = Launcher(os.environ[wire.ENV_DIRECTORY])
    importing.wait(lambda: launcher.install(sys.modules[MODULE]), MODULE)


class Launcher:
    """What this process has started, and which of that has ended."""

    def __init__(self, directory: str) -> None:
        """Begin with nothing started."""
        self.path = str(Path(directory) / wire.LIFE_SOCKET)
        self.context: Any = None
        self.told: set[int] = set()
        self.killed_before = oom.kills()

    def install(self, module: ModuleType) -> None:
        """Follow the starts and failures of processes, where this torch has them as they are known."""
        with suppress(AttributeError):
            for owner, name, wrap in (
                (module.PContext, "start", self.starting),
                (module.PContext, "close", self.closing),
                (module, "ProcessFailure", self.failing),
            ):
                setattr(owner, name, wrap(getattr(owner, name)))

    def starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the start of a group of processes: another attempt begins."""

        @functools.wraps(original)
        def start_all(context: Any, *args: Any, **kwargs: Any) -> Any:
            self.context, self.told, self.killed_before = context, set(), oom.kills()
            return original(context, *args, **kwargs)

        return start_all

    def closing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the end of a group, as when torchrun is told to end: its processes get a signal now."""

        @functools.wraps(original)
        def close(context: Any, death_sig: Any = None, *args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):
                self.ending(context.pids().values(), int(death_sig or signal.SIGTERM))
            return original(context, death_sig, *args, **kwargs)

        return close

    def ending(self, pids: Iterable[int], number: int) -> None:
        """Tell that the processes that are left end because torchrun ends them: that is no failure."""
        now = time.time()
        for pid in set(pids) - self.told:
            line = self.tell(RankExit(pid=pid, code=-number, time=now, asked=True))
            if line is None:
                return
            line.close()

    def failing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the making of a failure: it is made first, as it takes the time of the failure."""

        @functools.wraps(original, updated=())  # a class, whose attributes are no function's
        def make(*args: Any, **kwargs: Any) -> Any:
            failure = original(*args, **kwargs)
            with suppress(Exception):
                self.failed(failure.pid, failure.exitcode)
            return failure

        return make

    def failed(self, pid: int, code: int) -> None:
        """Tell of a process that has failed, and of others that have; wait while the living are told."""
        asked = bool(self.told)  # torchrun ends all at its first failure
        ended = {pid: code} | dict(self.ended())
        new = {each: code for each, code in ended.items() if each not in self.told}
        self.told |= set(new)
        now, kills = time.time(), self.kills()
        exits = [RankExit(pid=each, code=new[each], time=now, oom_kills=kills, asked=asked) for each in new]
        lines = [line for each in exits if (line := self.tell(each)) is not None]
        due = time.monotonic() + (0.0 if asked else PATIENCE)
        for line in lines:
            with line, suppress(OSError):
                if (left := due - time.monotonic()) > 0:
                    line.settimeout(left)
                    line.recv(16)

    def kills(self) -> int | None:
        """Return what the kernel has killed for memory in this attempt."""
        now = oom.kills()
        return None if now is None or self.killed_before is None else now - self.killed_before

    def ended(self) -> Iterator[tuple[int, int]]:
        """Yield pid and exit code of the processes that have ended badly, where torchrun starts programs."""
        for handler in getattr(self.context, "subprocess_handlers", {}).values():
            code = handler.proc.poll()
            if code:
                yield handler.proc.pid, code

    def tell(self, said: RankExit) -> socket.socket | None:
        """Tell the sidecar; return the connection that it will answer at, None where there is none."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            line.settimeout(CONNECT)
            line.connect(self.path)
            line.sendall(wire.to_line(said).encode() + b"\n")
        except OSError:
            line.close()
            return None
        return line
