"""A rank as the hub sees it: its last pulse, and for how long nothing has changed by the hub's own clock."""

import math
import re
from dataclasses import dataclass

from stepwarden.pulse import Pulse
from stepwarden.wire import State

PAUSES = frozenset({"evaluating", "checkpointing", "compiling"})  # marks of what may take minutes
# Where all ranks bring the same shapes; all_gather and all_to_all may take unlike ones.
ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"})
OWN = frozenset({"sleeping", "loading", "locked"})  # marks of a rank that waits for no other rank
TRAINING = frozenset({"forward", "backward", "optimizer"})
FRAME = re.compile(r'File "([^"]+)", line \d+')
LOCK = re.compile(
    r"\.acquire\(|^\s*with\b.*(?<![a-z])r?lock(?![a-z])", re.IGNORECASE
)  # of threading: C has no frames
AT_WORK = (
    *("/queue.py", "/selectors.py", "/socket.py", "/ssl.py", "/subprocess.py"),
    *("/multiprocessing/", "/concurrent/", "/asyncio/"),
)
REDUCES = ("torch/distributed/", "torch/nn/parallel/", "torch/autograd/graph.py", "torch/_dynamo/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """
    One rank. All durations are seconds by the hub's clock: ranks' clocks are never compared.

    `silent`: since the rank last said anything; `cut`: nor did its pod's sidecar. `unmoved`: since it told
    another step, phase or collective. `within`: since what came before says nothing of now (the hub's
    start, the end of a hold, a new process): what a rank says of its own stillness counts only as far.
    """

    pulse: Pulse
    state: State = "running"
    silent: float = 0.0
    cut: bool = False
    unmoved: float = 0.0
    within: float = math.inf

    @property
    def rank(self) -> int:
        """Its number."""
        return self.pulse.rank

    @property
    def still(self) -> float:
        """Seconds in which its main thread did nothing at all."""
        return min(number(self.pulse.still), self.within)

    @property
    def locked(self) -> bool:
        """
        Whether it waits for a lock or an event itself.

        Behind a queue, a future, a process or a connection somebody may be at work for it.
        """
        stack = self.pulse.stack if self.pulse.still else ""
        callers = [file for file in FRAME.findall(stack) if not file.endswith("/threading.py")]
        locked = "locked" in self.pulse.marks or bool(LOCK.search(stack.rstrip("\n").rpartition("\n")[2]))
        return locked and not any(part in "".join(callers[-1:]) for part in AT_WORK)

    @property
    def stuck(self) -> bool:
        """Whether it does nothing where it should: amid a training step, or at a lock."""
        return self.still > 0 and (self.pulse.phase in TRAINING or self.locked)

    @property
    def waits(self) -> float:
        """
        Seconds that it has waited for other ranks; 0 while it does something of its own.

        DistributedDataParallel reduces in C++, behind `backward()`: there only stillness tells.
        """
        pulse = self.pulse
        if pulse.collective:
            return min(number(pulse.waiting), self.within)
        if pulse.phase not in TRAINING or PAUSES & set(pulse.marks) or OWN & set(pulse.marks):
            return 0.0
        inside = reduces(pulse.stack)
        return self.still if inside or (inside is None and pulse.phase != "forward") else 0.0

    @property
    def recorded(self) -> tuple[str, int] | None:
        """The group, and the number in it, of the collective that it waits in, as torch has recorded it."""
        said = self.pulse.recorded
        group, number = said.get("group"), said.get("sequence")
        return (group, number) if isinstance(group, str) and isinstance(number, int) else None

    @property
    def brings(self) -> tuple[str, str]:
        """What it waits in, as torch has recorded it, and its tensors where all have to bring the same."""
        said = self.pulse.recorded
        name = str(said.get("name", ""))
        return name, str(said.get("tensors", "")) if name in ALIKE else ""

    @property
    def spins(self) -> float:
        """
        Seconds that it may have waited for a device, which uses the processor: it came no further.

        What is enqueued last may be waited for between two steps, as by the `item()` of a loss.
        """
        busy = self.pulse.phase != "starting" and not (PAUSES | OWN) & set(self.pulse.marks)
        return min(self.unmoved, self.within) if busy and not self.still else 0.0


def reduces(stack: str) -> bool | None:
    """Whether the innermost call is one that may wait for other ranks; None where there is no stack."""
    frames = FRAME.findall(stack)
    return any(part in frames[-1] for part in REDUCES) if frames else None


def number(value: float | None) -> float:
    """Return a duration that a rank told, 0 where it is none."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0
