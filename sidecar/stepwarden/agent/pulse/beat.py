"""Makes a rank's pulses, and says when one is due."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from stepwarden.agent.hooks.collectives import Collectives
from stepwarden.agent.hooks.replicas import Local
from stepwarden.agent.pulse import marks, stack, waiting
from stepwarden.agent.pulse.flight import Flight
from stepwarden.agent.pulse.phases import Phases
from stepwarden.agent.pulse.stillness import Stillness
from stepwarden.pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY, STILL = 1.0, 0.5  # seconds between two pulses; while the rank stands still
STEPS, SOONER = 5, 0.25  # so many steps give one sooner, after so many seconds
BUSY = 2.0  # seconds of work in which the rank came no further, after which its stack is told as well
EARLY = 0.05  # seconds that a pulse may come sooner, as the other thread looks at times of its own


class Beat:
    """Looks at the rank's main thread from another one. `training` are the codes that its steps run in."""

    def __init__(self, rank: int, phases: Phases, collectives: Collectives, local: Local) -> None:
        """Watch the thread that makes this."""
        self.rank, self.phases, self.collectives, self.local = rank, phases, collectives, local
        self.evaluating: Callable[[], bool] = lambda: False
        self.training: frozenset[CodeType] = frozenset()
        self.thread = threading.get_ident()
        self.stillness = Stillness(self.thread)
        self.node = os.environ.get("NODE_NAME") or os.uname().nodename
        self.flight: Flight | None = Flight()
        self.told, self.steps = 0.0, 0
        self.written: tuple[object, str] = (None, "")

    def next(self) -> Pulse | None:
        """Return a pulse if one is due: for another thread, to be asked a few times a second."""
        now = time.perf_counter()
        still = self.stillness.look(now, self.phases.events + self.collectives.count)
        since = now - self.told + EARLY
        if since < STILL or (still < STILL and since < EVERY):
            return None
        return self.seen(now, still)

    def stepped(self, now: float) -> Pulse | None:
        """Return a pulse if one is due at the end of a step: for the thread itself, so it reads no stack."""
        if self.phases.spent[0] - self.steps < STEPS or now - self.told < SOONER:
            return None
        return self.pulse(now)

    def pulse(self, now: float, **more: Any) -> Pulse:
        """Say where the rank is in its steps."""
        self.told = now
        median, spread, longest = self.phases.pace()
        self.steps, spent = self.phases.spent
        return Pulse(
            rank=self.rank,
            step=self.phases.step,
            time=time.time(),
            phase=self.phases.phase,
            sequence=self.collectives.begun(),
            median=median,
            spread=spread,
            longest=longest,
            steps=self.steps,
            spent={name: round(seconds, 6) for name, seconds in spent.items()},
            node=self.node,
            **more,
        )

    def seen(self, now: float, still: float) -> Pulse:
        """Say what its thread is at as well."""
        threads = sys._current_frames()  # noqa: SLF001 - the only way to another thread's stack
        calls = stack.frames(threads.get(self.thread))
        if waiting.in_reducer([frame.f_code for frame in calls]):
            calls += stack.of_engine(threads, self.thread)
        codes = [frame.f_code for frame in calls]
        collective, waited = self.waits(codes, now, still)
        file, line = stack.place(calls)
        more: dict[str, Any] = {"recorded": self.recorded(collective, waited), "file": file, "line": line}
        if still >= STILL or now - self.stillness.gone_on >= BUSY:
            more["stack"] = self.text(calls)
        excuses = marks.marks(codes, self.phases.phase, self.training, evaluating=self.evaluating())
        return self.pulse(
            now,
            still=round(still, 3),
            collective=collective,
            waiting=round(waited, 3),
            marks=excuses,
            **more,
        )

    def waits(self, codes: list[CodeType], now: float, still: float) -> tuple[str, float]:
        """Return the collective that it is inside of, and for how many seconds."""
        if (inside := self.collectives.inside) is not None:
            return waiting.called(codes) or inside[0], now - inside[1]
        if still <= 0:
            return "", 0.0
        accumulated = self.local.last
        if self.phases.state == "backward" and accumulated > self.phases.since and waiting.in_reducer(codes):
            return "all_reduce", now - accumulated
        name = waiting.called(codes)
        return name, still if name else 0.0

    def recorded(self, collective: str, waited: float) -> Mapping[str, Any]:
        """Return what the flight recorder has of a collective; what it has of none is nothing."""
        if not collective or self.flight is None:
            return {}
        try:
            return self.flight.waited_for((self.collectives.count, self.phases.events), waited)
        except Exception:  # noqa: BLE001 - its form is torch's own affair; the pulse goes on without it
            self.flight = None
            return {}

    def text(self, calls: list[FrameType]) -> str:
        """Write the stack; one that stands still is written once."""
        if self.written[0] != self.stillness.stack:
            self.written = (self.stillness.stack, stack.text(calls))
        return self.written[1]
