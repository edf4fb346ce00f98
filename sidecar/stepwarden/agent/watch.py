"""
What all watches have in common: a watch follows one thing in the user's process, for some probes.

A watch reads (hooks, tensors, torch's own state) and hands on plain records; a probe judges them.
It may raise: then it alone goes off, its kinds become unknown, and the training goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from stepwarden.agent.say import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from stepwarden.agent.environment import Environment
    from stepwarden.agent.hooks.calls import Call
    from stepwarden.agent.hooks.losses import Losses
    from stepwarden.agent.hooks.replicas import Local
    from stepwarden.agent.looks.reading import Reading, Values
    from stepwarden.wire import Finding, Message, Update

PERIOD = 100  # steps between two looks of what is too dear for every step


@dataclass(slots=True, eq=False)
class Host:
    """
    What watches share of the agent.

    `step` is the step that is being made: 0 until the first boundary is behind. `optimizers` are
    those that were made since the agent attached, `unknown` says by kind why a watch can't tell.
    `tell` says something to the sidecar, if there is one; `aside` judges records that belong to no boundary.
    `ticks` are called a few times a second by the agent's own thread, if there is a sidecar; none may raise.
    """

    environment: Environment
    losses: Losses
    local: Local
    step: int = 0
    optimizers: list[Callable[[], Optimizer | None]] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    tell: Callable[[Message], object] = lambda _message: None
    aside: Callable[[Optimizer, tuple[object, ...]], object] = lambda _optimizer, _records: None
    ticks: list[Callable[[], None]] = field(default_factory=list)

    def lost(self, kinds: Collection[str], what: str, error: Exception) -> None:
        """Say once that something watches no more, and that its kinds can't be told."""
        self.unknown |= dict.fromkeys(kinds, "WatchFailed")
        why = f"{type(error).__name__}: {error}"
        rank, named = self.environment.rank, ", ".join(kinds) or what
        say(f"rank {rank}: {named} can't be told any more, the training goes on: {why:.500}")

    def living(self) -> list[Optimizer]:
        """Return the optimizers that still live, in the order in which they were made."""
        return [optimizer for reference in self.optimizers if (optimizer := reference()) is not None]


@dataclass(slots=True, eq=False, kw_only=True)
class Moment:
    """
    One optimizer at the boundary of a step (before its update), or just behind the update.

    `count` is the number of this optimizer's steps before this one, `due` whether it is time for what
    is looked at every `PERIOD` steps (the first step included). `values` is None where the numbers
    are not waited for. `names` gives the parameters' names by id, and costs a walk where they changed.
    """

    optimizer: Optimizer
    step: int
    count: int
    due: bool
    reading: Reading
    names: Callable[[], Mapping[int, str]]
    roots: Callable[[], Sequence[nn.Module]]
    values: Values | None = None


class Watch:
    """
    One thing that is watched; what a watch doesn't need it leaves as it is here.

    `kinds` are the probes that it feeds: it is made where one of them is switched on, or where it feeds none.
    """

    kinds: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def wanted(cls, environment: Environment) -> bool:
        """Whether it is made at all."""
        return not cls.kinds or any(kind in environment.probes.probes for kind in cls.kinds)

    def __init__(self, host: Host) -> None:
        """Begin before the program's first line behind `import torch`."""
        self.host = host

    def install(self) -> Iterable[Callable[[], object]]:
        """Put hooks into torch; return what takes them off again."""
        return ()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Stand behind an optimizer's constructor."""

    def forward_began(self, call: Call) -> None:
        """Stand before an outermost module call with gradients enabled."""

    def forward_ended(self, call: Call, output: Any) -> None:
        """Stand behind such a call, unless it raised. `output` must not be changed."""

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Stand before a backward pass that starts from `tensors`."""

    def backward_ended(self) -> None:
        """Stand behind one, unless it raised."""

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look before an update, waiting for no device; return records for the probes."""
        return ()

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Look at `moment.values`, at once or, where they are put off, later; return records."""
        return ()

    def released(self, update: Update) -> None:
        """Stand behind a boundary, once the rank goes on: the update is applied, or left out."""

    def stepped(self, moment: Moment) -> Iterable[object]:
        """Look just behind an update; return records."""
        return ()

    def explain(self, moment: Moment, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Look closer at findings that are about to be said for the first time; return them, richer."""
        return findings

    def failed(self, finding: Finding) -> Finding:
        """Look closer at the exception that this rank ends by; return its finding, richer."""
        return finding
