"""
Frees a rank that is stuck because another one failed, so that it ends by itself within the grace period.

It waits in a collective for a rank that won't come. After part of the grace period the connections of
gloo are shut: then the collective raises in the main thread, and the program ends as by any other
exception; a rank that computes finds out at its next collective. What can't be freed so, as a wait for
the rendezvous' store, is ended by `os._exit`, and only while the main thread does not move at all.
NCCL is aborted where STEPWARDEN_NCCL_ABORT is 1; that could not be tried without several GPUs.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from stepwarden import wire
from stepwarden.agent.failing import stacks
from stepwarden.agent.failing.peers import Peers
from stepwarden.agent.failing.sockets import Sockets
from stepwarden.agent.pulse.stillness import Stillness

ENV_NCCL = "STEPWARDEN_NCCL_ABORT"
GRACE = 2.0  # seconds
SHUT_AFTER = 0.6  # of the grace period: who can ends by himself until then
STILL = 0.3  # of the grace period, in which a main thread that is ended by force has not moved
LOOK = 0.05  # seconds between two looks
TORCH = str(Path(torch.__file__).parent)


class Freeing:
    """
    What happens to a rank once another one has failed.

    `peers` knows whether that failure is still one of the job's present attempt, `held` says whether it is
    the gate that the main thread waits at; `last` says the last words of a rank and ends it. `freed` is
    True once its connections were shut.
    """

    def __init__(
        self, grace: float, peers: Peers, held: Callable[[], bool], last: Callable[[], object]
    ) -> None:
        """Begin with nobody to free; a grace period of 0 frees nobody ever."""
        self.grace, self.peers, self.held, self.last = grace, peers, held, last
        self.sockets = Sockets()
        self.freed, self.stopped = False, False
        self.thread: threading.Thread | None = None
        self.began: float | None = None

    def due(self) -> float | None:
        """Return when the grace period is over, by the monotonic clock, if it began now at the latest."""
        began = time.monotonic() if self.began is None else self.began
        return began + self.grace if self.grace > 0 else None

    def begin(self) -> None:
        """Begin the grace period, where it has not begun."""
        if self.grace > 0 and (self.thread is None or not self.thread.is_alive()):
            self.began = time.monotonic()
            self.thread = threading.Thread(target=self.run, name="stepwarden-freeing", daemon=True)
            self.thread.start()

    def run(self) -> None:
        """Wait, free, and end by force what could not be freed. Raises nothing."""
        try:
            began = time.monotonic()
            if self.lasts(began + SHUT_AFTER * self.grace):
                self.free()
                self.watch(began + self.grace)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            self.peers.say(f"this rank can't be freed: {type(error).__name__}: {error}")

    def lasts(self, until: float) -> bool:
        """Wait until a moment; False where there is nothing to do any more."""
        while time.monotonic() < until:
            if self.stopped or not self.peers.stands:
                return False
            time.sleep(LOOK)
        return True

    def free(self) -> None:
        """Shut gloo's connections, and abort NCCL where that was asked for."""
        self.freed = True
        if count := self.sockets.shut():
            self.peers.say(
                f"another rank failed: {count} connections of gloo are shut, so that this one ends"
            )
        if aborts_nccl(os.environ) and abort_nccl():
            self.peers.say("another rank failed: NCCL is aborted, so that this one ends")

    def watch(self, due: float) -> None:
        """End the process once it is due and the main thread has been stuck for a while."""
        main = threading.main_thread()
        stillness = Stillness(main.ident or 0)
        while not self.stopped and self.peers.stands and main.is_alive():
            now = time.monotonic()
            still = stillness.look(now, 0)
            if now >= due and still >= STILL * self.grace and is_stuck(main) and not self.held():
                where = stacks.of(main)
                self.peers.say(f"stuck because another rank failed: this one ends by os._exit(1) at\n{where}")
                self.last()
                return
            time.sleep(LOOK)


def is_stuck(thread: threading.Thread) -> bool:
    """Whether a thread is within torch's code, as in a collective."""
    frame = stacks.innermost(thread)
    return frame is not None and frame.f_code.co_filename.startswith(TORCH)


def grace(variables: Mapping[str, str]) -> float:
    """Read the grace period, in seconds."""
    try:
        seconds = float(variables.get(wire.ENV_GRACE) or GRACE)
    except ValueError:
        return GRACE
    return seconds if math.isfinite(seconds) else GRACE


def aborts_nccl(variables: Mapping[str, str]) -> bool:
    """Whether NCCL's communicators may be aborted."""
    return variables.get(ENV_NCCL) == "1"


def abort_nccl() -> int:
    """Abort the communicators of all groups of NCCL; return how many there were."""
    count = 0
    groups = torch.distributed.distributed_c10d._world.pg_map  # noqa: SLF001 - there is no list of them else
    for group in list(groups):
        try:
            abort = group._get_backend(torch.device("cuda")).abort  # noqa: SLF001 - as above
        except (RuntimeError, AttributeError):  # no group of NCCL, or a torch whose NCCL has no abort
            continue
        abort()
        count += 1
    return count
