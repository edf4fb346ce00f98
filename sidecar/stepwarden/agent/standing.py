"""Where a rank stands: running, held, failed or ended, and what it says of that."""

import os
import time
from collections.abc import Callable, Mapping

from torch.optim import Optimizer

from stepwarden.agent.link import Link
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.say import say
from stepwarden.wire import Finding, RankState, State, Update


class Standing:
    """
    A rank's state. `link` is None where there is no sidecar.

    `unknown` says by kind what can't be told, `saved` which wish for a checkpoint was answered.
    """

    def __init__(
        self,
        rank: int,
        link: Link | None,
        unknown: Callable[[], Mapping[str, str]],
        saved: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin running, before the first step."""
        self.saved = saved
        self.rank, self.link, self.unknown = rank, link, unknown
        self.state: tuple[State, str] = ("running", "")
        self.open: tuple[Finding, ...] = ()
        self.step = -1
        self.process = os.getpid()

    def held(self, pausing: tuple[Finding, ...], *, pauses: bool) -> None:
        """Say that the rank holds, and why: for findings of its own, or of another rank (`pauses`)."""
        others = ("FoundByAnotherRank", "another rank found this step bad")
        asked = others if pauses else ("HoldRequested", "a hold was asked for")
        reason, why = (pausing[0].kind, pausing[0].message) if pausing else asked
        self.state = ("held", reason)
        say(f"rank {self.rank} holds at step {self.step} before the update: {why}")
        self.say()
        self.open = pausing

    def go_on(self, update: Update) -> bool:
        """Say that the rank goes on; False if it was not held."""
        if self.state[0] != "held":
            return False
        self.state, self.open = ("running", ""), ()
        how = "without its update" if update == "skip" else "with its update"
        say(f"rank {self.rank} goes on from step {self.step} {how}")
        self.say()
        return True

    def whole(self) -> RankState:
        """Return all of it."""
        state, reason = self.state
        return RankState(
            rank=self.rank,
            state=state,
            step=self.step,
            time=time.time(),
            pid=self.process,
            reason=reason,
            unknown=self.unknown(),
            saved=self.saved(),
            attempt=self.link.attempt if self.link else 0,
        )

    def say(self) -> bool:
        """Say where the rank is, and while it is held what holds it; False where nobody listens."""
        if self.link is None:
            return False
        return self.link.say(self.whole()) and all(map(self.link.say, self.open))


def skip(optimizer: Optimizer) -> None:
    """Make an optimizer's step do nothing, weight decay included: it passes over what has no gradient."""
    for parameter in trained(optimizer):
        parameter.grad = None
