"""The watches at work: each is called in turn, and one that raises goes off alone."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stepwarden.agent.calls import Call
from stepwarden.agent.say import say
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.agent.watches import WATCHES
from stepwarden.wire import Finding


class Crew:
    """The watches of one agent. No method of it raises."""

    def __init__(self, host: Host) -> None:
        """Make the watches whose probes are switched on."""
        self.host = host
        self.watches: list[Watch] = []
        on = host.environment.probes.probes
        for cls in WATCHES:
            if not cls.kinds or any(kind in on for kind in cls.kinds):
                try:
                    self.watches.append(cls(host))
                except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                    self.lost(cls, error)

    def install(self) -> list[Callable[[], object]]:
        """Let each watch put its hooks; return what takes them off."""
        undo: list[Callable[[], object]] = []
        self.each(lambda watch: undo.extend(watch.install()))
        return undo

    def each(self, act: Callable[[Watch], object]) -> None:
        """Call each watch; one that raises goes off."""
        for watch in tuple(self.watches):
            try:
                act(watch)
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.watches.remove(watch)
                self.lost(type(watch), error)

    def lost(self, cls: type[Watch], error: Exception) -> None:
        """Say that a watch is off, once, and that its probes can't tell any more."""
        why = f"{type(error).__name__}: {error}"
        self.host.unknown |= dict.fromkeys(cls.kinds, "WatchFailed")
        rank = self.host.environment.rank
        say(f"rank {rank}: {', '.join(cls.kinds) or cls.__name__} can't be told any more, the training goes on: {why:.500}")

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Tell of a new optimizer."""
        self.each(lambda watch: watch.optimizer_made(optimizer))

    def forward_began(self, call: Call) -> None:
        """Tell that a forward pass begins."""
        self.each(lambda watch: watch.forward_began(call))

    def forward_ended(self, call: Call, output: Any) -> None:
        """Tell that a forward pass is done."""
        self.each(lambda watch: watch.forward_ended(call, output))

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Tell that a backward pass begins."""
        self.each(lambda watch: watch.backward_began(tensors))

    def boundary(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records from before an update."""
        return self.gather(lambda watch: watch.boundary(moment))

    def numbers(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records that are made of the step's numbers."""
        return self.gather(lambda watch: watch.numbers(moment))

    def stepped(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records from behind an update."""
        return self.gather(lambda watch: watch.stepped(moment))

    def gather(self, look: Callable[[Watch], Iterable[object]]) -> tuple[object, ...]:
        """Gather the records that watches make."""
        found: list[object] = []
        self.each(lambda watch: found.extend(look(watch)))
        return tuple(found)

    def explain(self, moment: Moment, findings: Sequence[Finding]) -> list[Finding]:
        """Let each watch look closer at new findings."""
        richer = list(findings)

        def look(watch: Watch) -> None:
            richer[:] = list(watch.explain(moment, tuple(richer)))

        if richer:
            self.each(look)
        return richer
