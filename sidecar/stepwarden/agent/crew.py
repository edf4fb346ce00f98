"""The watches at work: each is called in turn, and one that raises goes off alone."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stepwarden.agent.hooks.calls import Call
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.agent.watches import WATCHES
from stepwarden.wire import Finding, Update

EVENTS = (
    "optimizer_made",
    "forward_began",
    "forward_ended",
    "backward_began",
    "backward_ended",
    "boundary",
    "numbers",
    "released",
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
        for cls in WATCHES:
            if cls.wanted(host.environment):
                try:
                    self.watches.append(cls(host))
                except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                    host.lost(cls.kinds, cls.__name__, error)

    def install(self) -> list[Callable[[], object]]:
        """Let each watch put its hooks; return what takes them off."""
        undo: list[Callable[[], object]] = []
        for watch in self.watches.copy():
            try:
                undo.extend(watch.install())
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                self.host.lost(watch.kinds, type(watch).__name__, error)
                self.watches.remove(watch)
        self.listening = {event: [watch for watch in self.watches if hears(watch, event)] for event in EVENTS}
        return undo

    def drop(self, watch: Watch, error: Exception) -> None:
        """Call a watch no more."""
        self.listening = {
            event: [other for other in watches if other is not watch]
            for event, watches in self.listening.items()
        }
        self.host.lost(watch.kinds, type(watch).__name__, error)

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

    def backward_ended(self) -> None:
        """Tell that it is done."""
        self.tell("backward_ended")

    def boundary(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records from before an update."""
        return tuple(self.tell("boundary", moment))

    def numbers(self, moment: Moment) -> tuple[object, ...]:
        """Gather the records that are made of the step's numbers."""
        return tuple(self.tell("numbers", moment))

    def released(self, update: Update) -> None:
        """Tell that the rank goes on behind a boundary."""
        self.tell("released", update)

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
