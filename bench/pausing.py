"""
A healthy training of some ranks with what makes healthy ones look hung or slow: `pausing.py SEED`.

By the seed: steps whose times are drawn anew on each rank, batches of unlike sizes, a slow first step on one
rank, a pause of 20 s on one rank alone (an evaluation, a download, a save), and a model that is compiled.
"""

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, PAUSE = 100, 20.0
JITTERS = {
    "exponential": lambda clock: clock.expovariate(1 / 0.03),
    "now and then": lambda clock: 0.3 if clock.random() < 0.1 else 0.02,  # noqa: PLR2004 - one in ten
    "even": lambda clock: clock.uniform(0.03, 0.06),
    "none": lambda _clock: 0.0,
}


class Course:
    """What happens in a run, alike on all ranks."""

    def __init__(self, seed: int, ranks: int) -> None:
        drawn = random.Random(seed)  # noqa: S311 - no secret
        self.jitter = drawn.choice(list(JITTERS))
        self.pause = drawn.choice(["evaluate", "wait", "meet", "save"])
        self.pausing, self.at = drawn.randrange(ranks), drawn.randrange(20, STEPS - 10)
        self.slow_first = drawn.randrange(ranks) if drawn.random() < 0.5 else None  # noqa: PLR2004 - every second
        self.compiled = not seed % 3


def pause(how: str, model: nn.Module) -> None:
    """Do for 20 s what one rank does alone."""
    end = time.monotonic() + PAUSE
    if how == "evaluate":
        model.eval()
        with torch.no_grad():
            while time.monotonic() < end:
                model(torch.randn(64, 32))
        model.train()
    elif how == "save":
        save_everything(end)
    else:
        time.sleep(PAUSE)


def save_everything(end: float) -> None:
    """Stand for a save to a slow disk."""
    while time.monotonic() < end:
        time.sleep(0.5)


def main(seed: int) -> None:
    """Train."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    course, clock = Course(seed, ranks), random.Random(f"{seed} {rank}")  # noqa: S311 - no secret
    torch.manual_seed(seed + rank)
    inner = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    model = DistributedDataParallel(inner)
    called = torch.compile(model) if course.compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        time.sleep(JITTERS[course.jitter](clock))
        if step == 0 and rank == course.slow_first:
            time.sleep(8)
        if step == course.at and course.pause == "meet":
            if rank == course.pausing:
                time.sleep(PAUSE)
            dist.barrier()
        elif step == course.at and rank == course.pausing:
            pause(course.pause, inner)
        x = torch.randn(8 * clock.choice([1, 2, 4]), 32)
        optimizer.zero_grad()
        called(x).sub(x.mean(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    print(vars(Course(int(sys.argv[1]), int(os.environ["WORLD_SIZE"]))), flush=True)
    main(int(sys.argv[1]))
