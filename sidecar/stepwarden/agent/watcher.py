"""The agent's one thread: it takes orders, and says once a second where the rank is."""

import threading
import time
from collections.abc import Callable

from stepwarden.agent.gate import Gate
from stepwarden.agent.link import Link

INTERVAL = 1.0


class Watcher:
    """A daemon thread between the sidecar and the gate."""

    def __init__(
        self, link: Link, gate: Gate, again: Callable[[], object], failed: Callable[[], None]
    ) -> None:
        """Make it: `again` says the rank's whole state, `failed` is called where this thread breaks."""
        self.link = link
        self.gate = gate
        self.again = again
        self.failed = failed
        self.stopped = False
        self.thread = threading.Thread(target=self.run, name="stepwarden", daemon=True)

    def run(self) -> None:
        """Turn until stopped."""
        try:
            due = time.monotonic() + INTERVAL
            while not self.stopped:
                for orders in self.link.orders(max(0.0, due - time.monotonic())):
                    self.gate.receive(orders)
                if not self.stopped and time.monotonic() >= due:
                    due = time.monotonic() + INTERVAL
                    self.link.say_again()
                    self.again()
        except Exception:  # noqa: BLE001 - a guest never breaks its host, whatever went wrong
            if not self.stopped:
                self.failed()
