"""Two ranks that train, and now and then do something odd: `ranks.py WHAT...`, steps first."""

import contextlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(rank)
steps, *odd = sys.argv[1:]
AT = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        if rank == 1 and "sleep-in-forward" in odd and step == AT and self.training:
            time.sleep(8)  # sleeps
        return self.layers(x)


def pause():
    """Look at the model, on one rank alone."""
    time.sleep(20)
    return model.module(torch.randn(64, 16)).mean().item()


def mismatch():
    """Fail on one rank only, and go on with another collective than the others."""
    try:
        float("a sample that can't be read" if rank == 1 else "1")
        dist.all_reduce(torch.ones(1))  # reduces
    except ValueError:
        dist.barrier()  # meets


model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
Path(f"pid-{rank}").write_text(str(os.getpid()))
for step in range(int(steps)):
    x = torch.randn(8 * (1 + (step + rank) % 3), 16)
    time.sleep(0.02 + 0.06 * torch.rand(()).item())
    if step == 0 and "slow-start" in odd:
        time.sleep(3 * rank)
    if step == AT and rank == 0 and "pause" in odd:
        pause()
    if step == AT and rank == 0 and "evaluate" in odd:
        model.eval()
        time.sleep(6)
        model.train()
    if step == AT and "mismatch" in odd:
        mismatch()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step}", flush=True)  # noqa: T201 - a script of a test
with contextlib.suppress(RuntimeError):  # another rank may have gone first
    dist.destroy_process_group()
