"""The agent's one thread: it takes orders, and says once a second where the rank is."""

import threading
import time
from collections.abc import Callable

from stepwarden.agent.gate import Gate
from stepwarden.agent.link import Link

INTERVAL = 1.0
TICK = 0.5  # seconds between two looks at the training's thread; a waking costs more than what is done
SLACK = 0.02  # seconds that something may come sooner, to be done with something else


class Watcher:
    """A daemon thread between the sidecar and the gate."""

    def __init__(
        self, link: Link, gate: Gate, again: Callable[[], object], failed: Callable[[], None]
    ) -> None:
        """
        Make it: `again` says the rank's whole state, `failed` is called where this thread breaks.

        `ticks` are called a few times a second; none of them raises.
        """
        self.link = link
        self.gate = gate
        self.again = again
        self.failed = failed
        self.ticks: list[Callable[[], None]] = []
        self.stopped = False
        self.thread = threading.Thread(target=self.run, name="stepwarden", daemon=True)

    def run(self) -> None:
        """Turn until stopped."""
        try:
            due, next_tick = time.monotonic() + INTERVAL, 0.0
            while not self.stopped:
                until = min(due, next_tick) if self.ticks else due
                for orders in self.link.orders(max(0.0, until - time.monotonic())):
                    self.gate.receive(orders)
                now = time.monotonic() + SLACK
                if self.ticks and now >= next_tick:
                    next_tick = now + TICK
                    for tick in tuple(self.ticks):
                        tick()
                if not self.stopped and now >= due:
                    due = now + INTERVAL
                    self.link.say_again()
                    self.again()
        except Exception:  # noqa: BLE001 - a guest never breaks its host, whatever went wrong
            if not self.stopped:
                self.failed()
