"""What a rank's main thread is at, and how its process ended: told by others than that thread."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal

Phase = Literal["starting", "data", "forward", "backward", "optimizer"]
PARTS = {
    "starting": "code before the first step",
    "data": "code between two steps",
    "forward": "forward pass",
    "backward": "backward pass",
    "optimizer": "optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """
    What a rank's main thread is at, told by another thread of it: once a second, and more often when still.

    `step` is the step that is being made, `phase` where in it the rank is; `file` and `line` are the user's
    innermost, where its calls were looked at. `still` is for how many seconds the main thread has had the
    same calls and used no processor; `stack` is its Python stack, innermost call last, empty while it goes
    on. `collective` names the collective that it is inside of, empty outside, `sequence` counts those begun
    so far, `waiting` is for how many seconds it has been inside.
    `recorded` is what torch's flight recorder has of it: name, group, sequence (in that group), tensors.
    `marks` are what excuses a long pause: evaluating, checkpointing, compiling, loading, sleeping.
    `median`, `spread` (median absolute deviation) and `longest` are of the seconds of its last steps,
    None before there are some. `spent` sums over all `steps` so far the seconds of its own work by
    phase, and under "waiting" those inside collectives. `node` is its machine's name.
    """

    rank: int
    step: int
    time: float
    phase: Phase = "starting"
    still: float = 0.0
    stack: str = ""
    file: str | None = None
    line: int | None = None
    collective: str = ""
    sequence: int = 0
    waiting: float = 0.0
    recorded: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    median: float | None = None
    spread: float | None = None
    longest: float | None = None
    steps: int = 0
    spent: Mapping[str, float] = field(default_factory=dict)
    node: str = ""

    @property
    def part(self) -> str:
        """The part of a step, as a person calls it."""
        return PARTS[self.phase]

    def told(self) -> dict[str, Any]:
        """Put what differs from its default: the training's own thread may say it, so it is quickly made."""
        return {
            name: value
            for name, value, default in zip(NAMES, VALUES(self), DEFAULTS, strict=True)
            if value is not default and value != default
        }


NAMES = tuple(spec.name for spec in fields(Pulse))
DEFAULTS = tuple({} if spec.default is MISSING else spec.default for spec in fields(Pulse))
VALUES = attrgetter(*NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """
    How a rank's process ended, in the words of the launcher that waits for it.

    `code` is negative for a signal. `oom_kills` counts what the kernel killed for memory in the
    launcher's cgroup since it started, None where that can't be read. `asked`: it is the launcher that
    ends the process now, by that signal, as it does when it is told to end or another rank failed.
    """

    pid: int
    code: int
    time: float
    oom_kills: int | None = None
    asked: bool = False
