"""
One training in a process of its own, which takes a step whenever its stdin asks for one.

    python bench/trainings.py MODEL KIND SIDECAR_FOLDER

Answers each line `step` with the seconds that the step took, `memory` with the resident size in MiB,
`end` by ending. KIND is plain, agent or anomaly. Several ranks find each other by torchrun's variables.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

SIZES = {"small": (64, 4, 256), "middle": (256, 4, 256), "large": (512, 8, 256)}  # width, layers, vocabulary
BATCH, CONTEXT = 12, 64  # as nanoGPT trains on a CPU; the agent's cost does not depend on them
PICTURES = 32  # a batch of 32 x 32


class Transformer(nn.Module):
    """A small transformer over bytes."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits for each place, one row each."""
        return self.head(self.blocks(self.embed(tokens))).flatten(0, 1)


def convolutional() -> nn.Module:
    """Make a CNN with BatchNorm, as ResNets begin."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4, 10))


class Training:
    """A model, its optimizer, and one batch."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        if name == "cnn":
            model = convolutional()
            self.batch, self.wanted = torch.randn(PICTURES, 3, 32, 32), torch.randint(10, (PICTURES,))
        else:
            model = Transformer(*SIZES[name])
            tokens = torch.randint(SIZES[name][2], (BATCH, CONTEXT + 1))
            self.batch, self.wanted = tokens[:, :-1], tokens[:, 1:].flatten()
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.model = DistributedDataParallel(model) if dist.is_initialized() else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(self) -> float:
        """Take one step and return its seconds."""
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(self.model(self.batch), self.wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - began


def resident() -> float:
    """Return this process' resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Do what stdin asks for."""
    name, kind, folder = sys.argv[1:]
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    if kind == "agent":  # before all else, as an injected agent is
        Attached(Environment(rank=rank, ranks=ranks, directory=folder))
    if ranks > 1:
        dist.init_process_group("gloo")
    training = Training(name)
    print(training.parameters, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["step"]:
                with torch.autograd.set_detect_anomaly(kind == "anomaly"):
                    print(training.step(), flush=True)
            case ["memory"]:
                print(resident(), flush=True)
            case _:
                break


if __name__ == "__main__":
    main()
