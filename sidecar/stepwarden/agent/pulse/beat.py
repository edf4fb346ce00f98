"""Makes a rank's pulses, and says when one is due."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType

from stepwarden.agent.hooks.collectives import Collectives
from stepwarden.agent.hooks.replicas import Local
from stepwarden.agent.pulse import marks, stack, waiting
from stepwarden.agent.pulse.phases import Phases
from stepwarden.agent.pulse.stillness import Stillness, frame_of
from stepwarden.pulse import Pulse

EVERY, STILL = 1.0, 0.5  # seconds between two pulses; while the rank stands still
STEPS, SOONER = 5, 0.25  # so many steps give one sooner, after so many seconds
EARLY = 0.05  # seconds that a pulse may come sooner, as those who ask come at times of their own


def due(since: float, still: float, steps: int) -> bool:
    """Whether a pulse is due, so many seconds and steps after the last one."""
    since += EARLY
    return since >= EVERY or (still >= STILL and since >= STILL) or (steps >= STEPS and since >= SOONER)


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
        self.told, self.steps = 0.0, 0
        self.written: tuple[object, str] = (None, "")

    def next(self) -> Pulse | None:
        """Return a pulse if one is due; it is to be asked a few times a second."""
        now = time.perf_counter()
        still = self.stillness.look(now, self.phases.events + self.collectives.count)
        steps = self.phases.spent[0]
        if not due(now - self.told, still, steps - self.steps):
            return None
        self.told, self.steps = now, steps
        return self.pulse(now, still, time.time())

    def pulse(self, now: float, still: float, epoch: float) -> Pulse:
        """Say what the main thread is at."""
        calls = stack.frames(frame_of(self.thread))
        codes = [frame.f_code for frame in calls]
        phase = self.phases.phase
        collective, waited = self.waits(codes, now, still)
        stands = still >= STILL
        file, line = stack.place(calls) if stands else (None, None)
        median, spread, longest = self.phases.pace()
        steps, spent = self.phases.spent
        return Pulse(
            rank=self.rank,
            step=self.phases.step,
            time=epoch,
            phase=phase,
            still=round(still, 3),
            stack=self.text(calls) if stands else "",
            file=file,
            line=line,
            collective=collective,
            sequence=self.collectives.begun(),
            waiting=round(waited, 3),
            marks=marks.marks(codes, phase, self.training, evaluating=self.evaluating()),
            median=median,
            spread=spread,
            longest=longest,
            steps=steps,
            spent=rounded(spent),
            node=self.node,
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

    def text(self, calls: list[FrameType]) -> str:
        """Write the stack; one that stands still is written once."""
        if self.written[0] != self.stillness.stack:
            self.written = (self.stillness.stack, stack.text(calls))
        return self.written[1]


def rounded(spent: Mapping[str, float]) -> dict[str, float]:
    """Leave out what is below a microsecond, to keep datagrams short."""
    return {name: round(seconds, 6) for name, seconds in spent.items()}
