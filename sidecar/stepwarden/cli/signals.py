"""Signals to this process, kept until the run looks at them."""

import signal
from types import FrameType

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Within it, a signal is noted instead of ending the process; what is ignored (nohup) stays so."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "Signals":  # noqa: PYI034 - Python 3.10 has no Self
        for number in WATCHED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self.before[number] = signal.signal(number, self.note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Keep one."""
        self.received.append(signal.Signals(number))

    def take(self) -> list[signal.Signals]:
        """Return those that came since the last call."""
        taken, self.received = self.received, []
        return taken
