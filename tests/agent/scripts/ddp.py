"""
Two replicas of a small model; a NaN is born in rank 1's backward in the steps that are given.

    ddp.py FOLDER STEPS BAD_STEP,...

Writes digests of the parameters to FOLDER/RANK.txt: before and after each update, and, when
a file FOLDER/ask appears, from a second thread whatever the training thread is doing.
"""

import hashlib
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

folder, steps, bad = Path(sys.argv[1]), int(sys.argv[2]), [int(step) for step in sys.argv[3].split(",")]
dist.init_process_group("gloo")
rank = dist.get_rank()


class Birth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wanted):
        ctx.wanted = wanted
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return (gradient * float("nan") if ctx.wanted else gradient), None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.middle = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 4)

    def forward(self, x, wanted):
        return self.head(self.middle(Birth.apply(self.stem(x).relu(), wanted)))


torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(1 + rank)
out = (folder / f"{rank}.txt").open("a")


def digest(when, step):
    values = b"".join(value.detach().numpy().tobytes() for value in model.state_dict().values())
    out.write(f"{when} {step} {hashlib.sha256(values).hexdigest()}\n")
    out.flush()


def answer():
    while True:
        for ask in folder.glob(f"ask-{rank}-*"):
            digest("during", ask.name.split("-")[2])
            ask.unlink()
        time.sleep(0.01)


threading.Thread(target=answer, daemon=True).start()
for step in range(steps):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    loss = nn.functional.cross_entropy(model(x, rank == 1 and step in bad), y)
    optimizer.zero_grad()
    loss.backward()
    digest("before", step)
    optimizer.step()
    digest("after", step)
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)  # noqa: T201 - a script prints
if "CRASH" in os.environ:
    if rank == 1:
        raise ValueError(os.environ["CRASH"])
    time.sleep(60)
dist.destroy_process_group()
sys.exit(int(os.environ.get("EXIT_CODE", "0")))
