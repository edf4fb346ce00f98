"""
The end of a rank, told once: by an exception, by a call that ends the process, or at the program's end.

And the end of another rank, as this one hears of it. The process stays what it is: its exit code, what
it prints and its own traceback are the user's.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from stepwarden.agent import failures
from stepwarden.agent.agent import Agent
from stepwarden.agent.failing import errorfile, frames, gathered, last, peers, stacks, threads
from stepwarden.agent.failing.crash import Crash
from stepwarden.agent.failing.exits import Exits, code
from stepwarden.agent.failing.frames import Frames
from stepwarden.agent.failing.freeing import Freeing, grace
from stepwarden.agent.failing.peers import Peers
from stepwarden.agent.life import Life
from stepwarden.agent.say import say
from stepwarden.wire import Finding, Orders, State

if TYPE_CHECKING:
    from stepwarden.agent.watcher import Watcher

CAUSE = 1.5  # seconds that a rank which lost its peer waits to hear why, before it ends
OTHERS = "another rank failed"


class Ending:
    """How this rank ends, and what it hears of others' ends. `ended`: it has said its last words."""

    def __init__(self, agent: Agent) -> None:
        """Begin with nobody ended."""
        self.agent = agent
        self.rank, self.ended = agent.environment.rank, False
        self.finding: Finding | None = None
        self.watcher: Watcher | None = None
        self.excepthook = sys.excepthook
        self.peers = Peers(self.rank, self.step, lambda: self.finding is not None, self.heard)
        self.freeing = Freeing(grace(os.environ), self.peers, self.held, self.forced)
        self.exits = Exits(self.left, lambda: agent.standing.step)
        directory = agent.environment.directory
        self.life = Life(directory) if directory is not None else None
        self.crash: Crash | None = None

    def install(self) -> list[Callable[[], object]]:
        """Put the hooks; return what takes them off."""
        sys.excepthook = self.uncaught
        atexit.register(self.end)
        undo = [*self.exits.install(), threads.install(self.thread_failed), self.freeing.sockets.install()]
        directory = self.agent.environment.directory
        if directory is not None and self.agent.standing.link is not None:
            try:
                self.crash = Crash(directory, self.rank)
            except OSError as error:
                say(f"rank {self.rank}: of a crash there will be no stack: {error}")
        return [*undo, self.detach]

    def step(self) -> int:
        """Return the step that is being made."""
        return self.agent.standing.step + 1

    def held(self) -> bool:
        """Whether the rank waits at the gate."""
        return self.agent.standing.state[0] == "held"

    def live(self) -> None:
        """Keep the lifeline."""
        if self.life is not None and not self.ended:
            self.life.keep(self.agent.standing.whole())

    def again(self) -> None:
        """Say once a second where the rank is."""
        self.exits.forget()
        self.live()
        self.agent.standing.say()

    def receive(self, orders: Orders) -> None:
        """Take what orders tell of other ranks. Called by the watcher's thread."""
        self.agent.guard(self.peers.take, orders.told)

    def heard(self, fatal: bool) -> None:  # noqa: FBT001 - what was heard is one word
        """Say that it was printed, for who waits to end this rank; begin to end where another rank has."""
        self.agent.standing.say()
        if fatal:
            self.freeing.begin()

    def uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Report an uncaught exception, and hand it on as if this package was not in its traceback."""
        main = threading.current_thread() is threading.main_thread()
        with self.peers.lock:  # torch's hook gathers all of stderr meanwhile, and may lose it
            if main:
                self.agent.guard(failures.strip, error)
                self.agent.guard(self.failed, error)
            self.excepthook(kind, error, error.__traceback__ or trace)
            self.agent.guard(gathered.release, sys._getframe().f_back)  # noqa: SLF001 - who calls this hook
        if main:
            self.agent.guard(self.explain)

    def failed(self, error: BaseException) -> None:
        """Say that the rank failed; a person who interrupts it is no fault."""
        if self.over():
            return
        if isinstance(error, KeyboardInterrupt):
            self.last_words("ended", "Interrupted")
            return
        found = self.agent.crew.failed(failures.failed(error, self.rank, self.step()))
        if self.freeing.freed or (self.peers.cause is not None and not found.evidence["local"]):
            found = because(found, self.peers.cause)
        if found.evidence["local"]:
            self.last_words("failed", type(error).__name__, found)
        else:  # it has yet to hear why
            self.write_down(found)
            self.agent.report([found])

    def thread_failed(self, error: BaseException, thread: str) -> None:
        """Say that a thread failed: the rank lives on."""
        if not self.over():
            self.agent.guard(self.say_thread, error, thread)

    def say_thread(self, error: BaseException, thread: str) -> None:
        """Say it, as a warning."""
        found = failures.failed(error, self.rank, self.step())
        message = (
            f"thread {thread!r:.100} ended, the rank lives on: {found.message.removesuffix(' (exit code 1)')}"
        )
        facts = {name: value for name, value in found.evidence.items() if name != "exit_code"}
        evidence = {**facts, "thread": thread}
        self.agent.report([replace(found, severity="warning", message=message, evidence=evidence)])

    def left(self, status: int, frame: FrameType) -> None:
        """Say that the program ends this process by `os._exit`, which runs nothing more of it."""
        self.agent.guard(self.left_by, f"os._exit({status})", status, frames.below(frame))

    def left_by(self, how: str, status: int, calls: Frames) -> None:
        """Say that a call ended the program, and print its stack: nobody else does."""
        if self.over():
            return
        if status == 0:
            self.last_words("ended", "")
            return
        found = failures.left(how, status, calls, self.rank, self.step())
        self.last_words("failed", how, found)
        say("\n".join(peers.lines(found)))

    def forced(self) -> None:
        """End a rank that could not be freed."""
        calls = frames.below(stacks.innermost(threading.main_thread()))
        if not self.over():
            found = failures.left("os._exit(1)", 1, calls, self.rank, self.step())
            found = replace(found, message="stuck, and ended by stepwarden (exit code 1)")
            self.last_words("failed", "Stuck", because(found, self.peers.cause))
        os._exit(1)

    def end(self) -> None:
        """Say that the rank ended. Runs at the interpreter's exit."""
        error = failures.last_exception()
        if error is not None:  # the user's own excepthook stands before ours
            if not self.over():
                self.agent.guard(self.failed, error)
                self.agent.guard(self.explain)
            if self.agent.environment.ranks > 1:
                last.LAST.due = self.freeing.due()
        elif (leaving := self.exits.uncaught()) is not None:
            how = f"{leaving.name}({leaving.status!r:.200})"
            self.agent.guard(self.left_by, how, code(leaving.status), leaving.calls)
        elif not self.over():
            self.agent.guard(self.agent.finish)
            self.agent.guard(self.last_words, "ended", "")
        self.hush()

    def hush(self) -> None:
        """Let no thread of the agent print any more: the interpreter takes stderr down next."""
        self.freeing.stopped = True
        self.peers.close()
        if self.watcher is not None:
            self.watcher.stopped = True

    def over(self) -> bool:
        """Whether there is nothing more to say: it was said, or this is a child process."""
        return self.ended or os.getpid() != self.agent.standing.process

    def last_words(self, state: State, reason: str, *findings: Finding) -> None:
        """Say the final state and its findings, with a moment's patience."""
        self.ended = True
        self.agent.standing.state = (state, reason)
        if self.agent.standing.link is not None:
            self.agent.standing.link.say_last(*findings, self.agent.standing.whole())
        for each in findings:
            self.write_down(each)

    def write_down(self, finding: Finding) -> None:
        """Keep what the rank fails by, for torchrun as well."""
        self.finding = finding
        errorfile.write(finding)

    def explain(self) -> None:
        """Print what the user's own traceback does not say: the tensors in it, and which rank is to blame."""
        if self.finding is None or os.getpid() != self.agent.standing.process:
            return
        if shapes := peers.of_tensors(self.finding.evidence.get("tensors")):
            say(f"rank {self.rank} failed at step {self.finding.step}, " + "\n".join(shapes))
        if self.ended:
            return
        if self.agent.standing.link is not None:
            self.peers.arrived.wait(CAUSE)
        self.last_words("failed", self.finding.message.partition(":")[0])

    def forked(self) -> None:
        """Be silent in a child process."""
        if self.life is not None:
            self.life.close()
        if self.crash is not None:
            self.crash.forked()

    def detach(self) -> None:
        """Take everything off again."""
        self.ended = self.freeing.stopped = True
        if sys.excepthook == self.uncaught:
            sys.excepthook = self.excepthook
        atexit.unregister(self.end)
        if self.life is not None:
            self.life.say(replace(self.agent.standing.whole(), state="ended", reason="Detached"))
            self.life.close()
        if self.crash is not None:
            self.crash.detach()


def because(finding: Finding, cause: Finding | None) -> Finding:
    """Put a failure as the consequence of another rank's."""
    rank = cause.rank if cause is not None else None
    return replace(finding, evidence={**finding.evidence, "local": False, "because": rank})
