"""Attaching the agent to the process it runs in, and taking it off again."""

import functools
import os
import weakref
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stepwarden.agent.agent import Agent
from stepwarden.agent.ending import Ending
from stepwarden.agent.environment import Environment
from stepwarden.agent.hooks import compiled, losses, optimizers, replicas
from stepwarden.agent.link import Link
from stepwarden.agent.say import say
from stepwarden.agent.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable


class Attached:
    """An agent at work in this process."""

    def __init__(self, environment: Environment) -> None:
        """Attach. Raises where torch lacks what the agent hooks into."""
        self.agent = Agent(environment, connect(environment))
        self.ending = Ending(self.agent)
        self.watcher = self.ending.watcher = self.watch()
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
        self.undo += self.ending.install()
        ending = weakref.ref(self.ending)
        os.register_at_fork(after_in_child=lambda: forked(ending))

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
        self.ending.live()
        agent.gate.listeners.append(self.ending.receive)
        watcher = Watcher(agent.standing.link, agent.gate, self.ending.again, agent.broke)
        watcher.ticks = agent.host.ticks
        watcher.thread.start()
        return watcher

    def detach(self) -> None:
        """Take everything off again."""
        self.agent.off = True
        for undo in reversed(self.undo):
            undo()
        if self.watcher is not None:
            self.watcher.stopped = True
            self.watcher.thread.join()
        if self.agent.standing.link is not None:
            self.agent.standing.link.close()


def forked(ending: weakref.ref[Ending]) -> None:
    """Be off in a child process."""
    if (living := ending()) is not None:
        living.agent.off = True
        living.forked()


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
