"""
A soak for silence: long healthy trainings, watched by all probes, of which nothing above info may be said.

    python bench soak [--steps N] [--only transformer,gan]

Each of five trainings runs with and without mixed precision, with and without a warm-up, in this
process, with the agent attached to a socket as under `stepwarden run`. Exit code 1: something was said.
"""

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from healthy import TRAININGS

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

STEPS = 2000


class Ear:
    """What an agent says to its sidecar's socket."""

    def __init__(self, folder: str) -> None:
        """Begin to listen."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(Path(folder) / wire.SIDECAR_SOCKET))
        self.findings: list[wire.Finding] = []
        self.unknown: dict[str, str] = {}
        self.steps, self.dropped = 0, 0  # of all optimizers; messages that found no room
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        """Hear until the socket is shut."""
        with suppress(OSError):
            while line := self.socket.recv(wire.MAX_DATAGRAM):
                match wire.from_line(line):
                    case wire.Finding() as finding:
                        self.findings.append(finding)
                    case wire.StepTaken(dropped=dropped):
                        self.steps += 1
                        self.dropped = dropped
                    case wire.RankState(unknown=unknown):
                        self.unknown = dict(unknown)

    def close(self) -> None:
        """Hear what is still there, and end."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()


@contextmanager
def watched() -> Iterator[Ear]:
    """Attach an agent with all probes, and listen to it; the policy only observes."""
    with tempfile.TemporaryDirectory() as folder:
        ear = Ear(folder)
        rules = (policy.Rule(severity="info"),)
        attached = Attached(Environment(rank=0, directory=folder, rules=rules))
        try:
            yield ear
        finally:
            attached.detach()
            ear.close()


def soak(name: str, steps: int, *, amp: bool, warm_up: bool) -> Ear:
    """Run one training for some steps, and return what was heard."""
    torch.manual_seed(0)
    with watched() as ear:
        training = TRAININGS[name](amp=amp, warm_up=warm_up)
        for _ in range(steps):
            next(training)
        training.close()
    return ear


def main(options: Sequence[str] | None = None) -> int:
    """Run all, and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--only", default=",".join(TRAININGS))
    given = parser.parse_args(options)
    torch.set_num_threads(1)
    alarms = 0
    for name in given.only.split(","):
        for amp, warm_up in ((False, False), (False, True), (True, False), (True, True)):
            began = time.monotonic()
            ear = soak(name, given.steps, amp=amp, warm_up=warm_up)
            loud = [finding for finding in ear.findings if finding.severity != "info"]
            alarms += len(loud)
            variant = f"{'amp' if amp else 'float32'}, {'warm-up' if warm_up else 'no warm-up'}"
            taken = time.monotonic() - began
            print(
                f"{name:12} {variant:20} {given.steps} steps  {len(loud)} alarms  "
                f"{len(ear.findings) - len(loud)} infos  {taken:.0f} s  "
                f"can't tell: {', '.join(sorted(ear.unknown)) or '-'}",
                flush=True,
            )
            for finding in loud:
                print(f"    step {finding.step}: {finding.kind}: {finding.message}", flush=True)
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
