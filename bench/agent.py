"""
What the agent costs: the same training step plainly, with the agent, and under detect_anomaly.

    python bench agent [--ddp] [--rounds N] [--models small,middle,large,cnn]

Paired and interleaved, each kind in processes of its own, so that nothing of the agent is in the plain
one and what else the machine does hits all alike: a round takes one step of each kind, in an order
that changes. Prints the ratio of the medians and the quartiles of the rounds' ratios; no times, as
those are the machine's. Beside it the resident memory that the agent's process has more.
"""

import argparse
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepwarden import wire

KINDS = ("plain", "agent", "anomaly")
WARM_UP = 5
TRAININGS = Path(__file__).with_name("trainings.py")


class Group:
    """The processes of one kind, one a rank."""

    def __init__(self, model: str, kind: str, ranks: int, folder: str) -> None:
        self.ranks: list[subprocess.Popen[str]] = []
        port = free_port()
        for rank in range(ranks):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            self.ranks.append(
                subprocess.Popen(  # noqa: S603 - our own script
                    [sys.executable, str(TRAININGS), model, kind, folder],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | variables | meeting,
                )
            )
        self.parameters = int(self.answers()[0])

    def answers(self) -> list[float]:
        """Read a number from each rank."""
        lines = [rank.stdout.readline() if rank.stdout else "" for rank in self.ranks]
        return [float(line) for line in lines]

    def ask(self, what: str) -> float:
        """Ask all ranks at once; return the first one's answer."""
        for rank in self.ranks:
            if rank.stdin:
                rank.stdin.write(f"{what}\n")
                rank.stdin.flush()
        return self.answers()[0]

    def end(self) -> None:
        """End the processes."""
        for rank in self.ranks:
            rank.communicate("end\n", timeout=60)


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def measure(model: str, ranks: int, rounds: int, folder: str) -> None:
    """Print the ratios of one model."""
    groups = {kind: Group(model, kind, ranks, folder) for kind in KINDS}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    orders = itertools.cycle(itertools.permutations(KINDS))
    for number, order in enumerate(itertools.islice(orders, rounds + WARM_UP)):
        for kind in order:
            taken = groups[kind].ask("step")
            if number >= WARM_UP:
                seconds[kind].append(taken)
    memory = {kind: group.ask("memory") for kind, group in groups.items()}
    for group in groups.values():
        group.end()
    for kind in KINDS[1:]:
        ratios = [one / base for one, base in zip(seconds[kind], seconds["plain"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        whole = statistics.median(seconds[kind]) / statistics.median(seconds["plain"])
        print(
            f"{model:6} {groups[kind].parameters / 1e6:5.1f}M parameters, {ranks} rank(s), {kind:7}"
            f"  ratio of medians {whole:.4f}, median ratio {middle:.4f}, quartiles {low:.3f} to {high:.3f}"
            f"  ({len(ratios)} pairs)  memory {memory[kind] - memory['plain']:+.0f} MiB",
            flush=True,
        )


@contextlib.contextmanager
def sidecar() -> Iterator[str]:
    """Take what the agents say, and do nothing with it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
    ):
        listening.bind(str(Path(folder) / wire.SIDECAR_SOCKET))
        threading.Thread(target=drain, args=(listening,), daemon=True).start()
        yield folder
        listening.shutdown(socket.SHUT_RDWR)


def drain(listening: socket.socket) -> None:
    """Read until the socket is shut."""
    with contextlib.suppress(OSError):
        while listening.recv(wire.MAX_DATAGRAM):
            pass


def main(options: Sequence[str]) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python bench agent")
    parser.add_argument("--ddp", action="store_true", help="two ranks")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--models", default="small,middle,large,cnn")
    given = parser.parse_args(options)
    with sidecar() as folder:
        for model in given.models.split(","):
            measure(model, 2 if given.ddp else 1, given.rounds, folder)
