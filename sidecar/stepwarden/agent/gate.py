"""The gate at the step boundary: when a rank waits there, and until when."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepwarden.attempt import until
from stepwarden.wire import Orders, Update

if TYPE_CHECKING:
    from stepwarden.agent.saving.asking import Asking

SIGNALS_SEEN = 1.0  # seconds until a signal that another thread took reaches a waiting main thread


def waits(step: int, orders: Orders, *, finding: bool, attempt: int = 0) -> bool:
    """
    Whether a rank at the boundary of a step waits, for a finding of that step or a person's hold.

    What was acknowledged in an earlier attempt, whose steps had the same numbers, lets none of this one pass.
    """
    asked = orders.hold_at is not None and step >= orders.hold_at
    return asked or (finding and (attempt, step) > until(orders))


class Gate:
    """Holds the training thread; orders come from the watcher thread."""

    def __init__(self, attempt: int = 0) -> None:
        """Begin open, in an attempt of the rank's."""
        self.attempt = attempt
        self.orders = Orders()
        self.abandoned = False
        self.saving: Asking | None = None
        self.changed = threading.Condition()
        self.listeners: list[Callable[[Orders], object]] = []

    def receive(self, orders: Orders) -> None:
        """Take new orders, and hand them on to who listens."""
        with self.changed:
            self.orders = orders
            if self.saving is not None and orders.hold_at is None:
                self.saving.prompted = False
            self.changed.notify_all()
        for listen in self.listeners:
            listen(orders)

    def abandon(self) -> None:
        """Let the rank go on for ever: the agent itself is broken."""
        with self.changed:
            self.abandoned = True
            self.changed.notify_all()

    def agree(self, step: int, patience: float) -> bool | None:
        """
        Wait until all ranks have said a step; False if one of them found it bad.

        None after `patience` seconds without an answer. A finding is said before its step, so
        nothing that a rank found is missing once all have said theirs.
        """
        with self.changed:
            known = self.changed.wait_for(
                lambda: self.abandoned or self.orders.agreed >= step or self.orders.unsound == step, patience
            )
            if not known or self.abandoned:
                return None
            return self.orders.unsound != step

    def pass_(self, step: int, *, finding: bool, held: Callable[[], None]) -> Update:
        """
        Wait at the boundary of a step while orders or its finding ask for it; a signal interrupts.

        Calls `held` once, before waiting. Returns what becomes of the update.
        """
        with self.changed:
            if self.waiting(step, finding=finding):
                held()
        while self.waiting(step, finding=finding):
            self.turn()
        with self.changed:
            return self.orders.update if finding and not self.abandoned else "apply"

    def waiting(self, step: int, *, finding: bool) -> bool:
        """Whether a rank at the boundary still waits; a program that has to go on to save doesn't."""
        asked = waits(step, self.orders, finding=finding, attempt=self.attempt) and not self.abandoned
        return asked and not (self.saving is not None and self.saving.lets_through)

    def turn(self) -> None:
        """Wait for news, and ask for a checkpoint where that is the news: that takes time, and no lock."""
        orders, saving = self.orders, self.saving
        if saving is not None and orders.save > saving.asked:
            saving.ask(orders.save)
            return
        with self.changed:
            if self.orders is orders:
                self.changed.wait(SIGNALS_SEEN)
