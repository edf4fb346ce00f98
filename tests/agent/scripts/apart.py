"""Two ranks: one waits in collectives for the other one, which stays away until a file is there."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
late = dist.get_rank() == 1


def until(name):
    while not (folder / name).exists():
        time.sleep(0.05)  # away


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, x):
        if late and step == 3:
            until("forward")
        return self.layers(x)


torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(steps):
    if step == 5:
        if late:
            until("data")
        dist.all_reduce(torch.ones(1))
    if step == 7:
        if late:
            until("objects")
        dist.all_gather_object([None, None], step)
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
until("end")
dist.destroy_process_group()
