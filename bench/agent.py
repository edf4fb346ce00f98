"""
What the agent costs: the same training step plainly, with the agent, and under detect_anomaly.

    python bench/agent.py [--ddp] [--rounds N] [--sizes small,middle,large]

Paired and interleaved in one process, so that what else the machine does hits all alike: a round
takes one step of each kind, in an order that changes. Prints the median of the rounds' ratios
to the plain step, with its quartiles; only ratios, as times are the machine's.
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
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stepwarden import wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

SIZES = {"small": (64, 4, 256), "middle": (256, 4, 256), "large": (512, 8, 256)}  # width, layers, vocabulary
BATCH, CONTEXT = 12, 64  # as nanoGPT trains on a CPU; the agent's cost does not depend on them
WARM_UP = 3


class Model(nn.Module):
    """A small transformer over bytes."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits for each place."""
        return self.head(self.blocks(self.embed(tokens)))


class Training:
    """One training, which can be attached to and left again."""

    def __init__(self, size: str, folder: str, *, watched: bool) -> None:
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.attached = None
        if watched:  # before the model is wrapped, as an injected agent is
            self.attached = Attached(Environment(rank=rank, ranks=ranks, directory=folder))
        torch.manual_seed(0)
        inner = Model(*SIZES[size])
        self.parameters = sum(parameter.numel() for parameter in inner.parameters())
        self.model = DistributedDataParallel(inner) if ranks > 1 else inner
        self.optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-4)
        self.tokens = torch.randint(SIZES[size][2], (BATCH, CONTEXT + 1))

    def step(self) -> float:
        """Take one step and return its seconds."""
        began = time.perf_counter()
        logits = self.model(self.tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - began


def switch(training: Training, *, on: bool) -> None:
    """Switch the agent on or off: off, it returns at each of its entries."""
    if training.attached is not None:
        training.attached.agent.off = not on


def measure(size: str, rounds: int, folder: str) -> None:
    """Print the ratios of one size."""
    plain = Training(size, folder, watched=False)
    watched = Training(size, folder, watched=True)
    seconds: dict[str, list[float]] = {"plain": [], "agent": [], "anomaly": []}
    orders = itertools.cycle(itertools.permutations(seconds))
    for number, order in enumerate(itertools.islice(orders, rounds + WARM_UP)):
        for kind in order:
            switch(watched, on=kind == "agent")
            with torch.autograd.set_detect_anomaly(kind == "anomaly"):
                taken = (watched if kind == "agent" else plain).step()
            if number >= WARM_UP:
                seconds[kind].append(taken)
    watched.attached.detach()
    for kind in ("agent", "anomaly"):
        ratios = [one / base for one, base in zip(seconds[kind], seconds["plain"], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        whole = statistics.median(seconds[kind]) / statistics.median(seconds["plain"])
        if int(os.environ.get("RANK", "0")) == 0:
            print(
                f"{plain.parameters / 1e6:5.1f}M parameters  {kind:8} ratio of medians {whole:.4f}"
                f"  quartiles of the pairs {low:.3f} to {high:.3f}  ({len(ratios)} pairs)",
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


def main() -> int:
    """Measure, under torchrun if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--ddp", action="store_true", help="two ranks")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sizes", default=",".join(SIZES))
    given = parser.parse_args()
    if given.ddp and "RANK" not in os.environ:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return subprocess.call([*launcher, *sys.argv], env={**os.environ, "OMP_NUM_THREADS": "1"})  # noqa: S603 - itself
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        torch.set_num_threads(1)
    with sidecar() as folder:
        for size in given.sizes.split(","):
            measure(size, given.rounds, folder)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
