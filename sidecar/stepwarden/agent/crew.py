"""The watches at work: each is called in turn, and one that raises goes off alone."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stepwarden.agent.hooks.calls import Call
from stepwarden.agent.say import say
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.agent.watches import WATCHES
from stepwarden.wire import Finding

EVENTS = (
    "optimizer_made",
    "forward_began",
    "forward_ended",
    "backward_began",
    "boundary",
    "numbers",
    "stepped",
    "explain",
    "failed",
)


class Crew:
    """The watches of one agent. No method of it raises."""

    def __init__(self, host: Host) -> None:
        """Make the watches whose probes are switched on."""
        self.host = host
        self.watches: list[Watch] = []
        self.listening: dict[str, list[Watch]] = {event: [] for event in EVENTS}
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
        for watch in self.watches.copy():
            try:
                undo.extend(watch.install())
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.lost(type(watch), error)
                self.watches.remove(watch)
        self.listening = {event: [watch for watch in self.watches if hears(watch, event)] for event in EVENTS}
        return undo

    def lost(self, cls: type[Watch], error: Exception) -> None:
        """Say that a watch is off, once, and that its probes can't tell any more."""
        why = f"{type(error).__name__}: {error}"
        self.host.unknown |= dict.fromkeys(cls.kinds, "WatchFailed")
        rank, what = self.host.environment.rank, ", ".join(cls.kinds) or cls.__name__
        say(f"rank {rank}: {what} can't be told any more, the training goes on: {why:.500}")

    def drop(self, watch: Watch, error: Exception) -> None:
        """Call a watch no more."""
        self.listening = {
            event: [other for other in watches if other is not watch]
            for event, watches in self.listening.items()
        }
        self.lost(type(watch), error)

    def tell(self, event: str, *what: Any) -> list[Any]:
        """Call each watch that listens to an event, and return what they made; one that raises goes off."""
        made: list[Any] = []
        for watch in self.listening[event]:
            try:
                made.extend(getattr(watch, event)(*what) or ())
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.drop(watch, error)
        return made

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Tell of a new optimizer."""
        self.tell("optimizer_made", optimizer)

    def forward_began(self, call: Call) -> None:
        """Tell that a forward pass begins."""
        self.tell("forward_began", call)

    def forward_ended(self, call: Call, output: Any) -> None:
        """Tell that a forward pass is done."""
        self.tell("forward_ended", call, output)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Tell that a backward pass begins."""
        self.tell("backward_began", tensors)

    def boundary(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records from before an update."""
        return tuple(self.tell("boundary", moment))

    def numbers(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records that are made of the step's numbers."""
        return tuple(self.tell("numbers", moment))

    def stepped(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records from behind an update."""
        return tuple(self.tell("stepped", moment))

    def explain(self, moment: Moment, findings: Sequence[Finding]) -> list[Finding]:
        """Let each watch look closer at new findings."""
        richer = list(findings)
        for watch in self.listening["explain"] if findings else ():
            try:
                richer = list(watch.explain(moment, tuple(richer)))
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.drop(watch, error)
        return richer

    def failed(self, finding: Finding) -> Finding:
        """Let each watch look closer at the exception that the rank ends by."""
        for watch in self.listening["failed"]:
            try:
                finding = watch.failed(finding)
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.drop(watch, error)
        return finding


def hears(watch: Watch, event: str) -> bool:
    """Whether a watch does something about an event."""
    return getattr(type(watch), event) is not getattr(Watch, event)
