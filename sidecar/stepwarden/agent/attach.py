"""Attaching the agent to the process it runs in, and taking it off again."""

import atexit
import functools
import os
import sys
import weakref
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stepwarden.agent import failures
from stepwarden.agent.agent import Agent
from stepwarden.agent.environment import Environment
from stepwarden.agent.hooks import compiled, losses, optimizers, replicas
from stepwarden.agent.link import Link
from stepwarden.agent.say import say
from stepwarden.agent.watcher import Watcher
from stepwarden.wire import Finding, State

if TYPE_CHECKING:
    from collections.abc import Callable


class Attached:
    """An agent at work in this process."""

    def __init__(self, environment: Environment) -> None:
        """Attach. Raises where torch lacks what the agent hooks into."""
        self.agent = Agent(environment, connect(environment))
        self.ended = False
        self.excepthook = sys.excepthook
        self.watcher = self.watch()
        self.undo: list[Callable[[], object]] = [
            register_optimizer_step_pre_hook(compiled.eagerly(self.agent.before_step)).remove,
            register_optimizer_step_post_hook(compiled.eagerly(self.agent.after_step)).remove,
            optimizers.install(functools.partial(self.agent.guard, self.agent.made)),
            self.agent.calls.install(),
            losses.install(self.agent.losses, self.agent.guard),
            compiled.install(),
        ]
        self.undo += self.agent.crew.install()
        if environment.ranks > 1 and torch.distributed.is_available():
            self.undo.append(replicas.install(self.agent.local, self.agent.guard))
        sys.excepthook = self.uncaught
        atexit.register(self.end)
        agent = weakref.ref(self.agent)
        os.register_at_fork(after_in_child=lambda: forked(agent))

    def watch(self) -> Watcher | None:
        """Start the thread that takes orders, where there is a sidecar to give them."""
        agent = self.agent
        if agent.standing.link is None:
            return None
        if not agent.standing.say():
            say(
                f"rank {agent.environment.rank}: no sidecar answers at {agent.standing.link.sidecar}: "
                "findings are printed here, and nothing is held"
            )
            agent.standing.link.close()
            agent.standing.link = None
            return None
        watcher = Watcher(agent.standing.link, agent.gate, agent.standing.say, agent.broke)
        watcher.thread.start()
        return watcher

    def uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Report an uncaught exception, and hand it on as if this package was not in its traceback."""
        self.agent.guard(failures.strip, error)
        self.agent.guard(self.failed, error)
        self.excepthook(kind, error, error.__traceback__ or trace)

    def failed(self, error: BaseException) -> None:
        """Say that the rank failed; a person who interrupts it is no fault."""
        agent = self.agent
        if os.getpid() != agent.standing.process or self.ended:
            return
        self.ended = True
        if isinstance(error, KeyboardInterrupt):
            self.last_words("ended", "Interrupted")
        else:
            found = failures.failed(error, agent.environment.rank, agent.standing.step + 1)
            self.last_words("failed", type(error).__name__, agent.crew.failed(found))

    def end(self) -> None:
        """Say that the rank ended. Runs at the interpreter's exit."""
        error = failures.last_exception()
        if error is not None:  # the user's own excepthook stands before ours
            self.agent.guard(self.failed, error)
        elif not self.ended and os.getpid() == self.agent.standing.process:
            self.ended = True
            self.agent.guard(self.agent.finish)
            self.agent.guard(self.last_words, "ended", "")

    def last_words(self, state: State, reason: str, *findings: Finding) -> None:
        """Say the final state and its findings, with a moment's patience."""
        self.agent.standing.state = (state, reason)
        if self.watcher is not None:
            self.watcher.stopped = True
        if self.agent.standing.link is not None:
            self.agent.standing.link.say_last(*findings, self.agent.standing.whole())

    def detach(self) -> None:
        """Take everything off again."""
        self.ended = True
        self.agent.off = True
        for undo in reversed(self.undo):
            undo()
        if sys.excepthook == self.uncaught:
            sys.excepthook = self.excepthook
        atexit.unregister(self.end)
        if self.watcher is not None:
            self.watcher.stopped = True
            self.watcher.thread.join()
        if self.agent.standing.link is not None:
            self.agent.standing.link.close()


def forked(agent: weakref.ref[Agent]) -> None:
    """Be off in a child process."""
    if (living := agent()) is not None:
        living.off = True


def connect(environment: Environment) -> Link | None:
    """Open the line to the sidecar; None, and a line on stderr, where there can't be one."""
    if environment.directory is None:
        say(f"rank {environment.rank}: no sidecar (STEPWARDEN_DIR is not set): nothing is held")
        return None
    try:
        return Link(environment.directory, environment.rank)
    except OSError as error:
        say(f"rank {environment.rank}: no sidecar ({error}): findings are printed here, and nothing is held")
        return None
