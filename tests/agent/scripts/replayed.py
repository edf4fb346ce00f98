"""Two ranks train with statistics, dropout, checkpoints; one rank's sample spoils a step's gradients."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

BAD = 2


class Distance(nn.Module):
    def forward(self, x):
        return x.pow(2).sum(-1, keepdim=True).sqrt()  # culprit


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4, bias=False)
        self.distance = Distance()
        self.norm = nn.BatchNorm1d(1)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(1, 1)

    def forward(self, x):
        far = checkpoint(self.distance, self.proj(x), use_reentrant=False)
        return self.head(self.drop(self.norm(far)))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(rank)
for step in range(5):
    x = torch.randn(6, 4)
    if step == BAD and rank == 1:
        x[2] = 0
    optimizer.zero_grad()
    model(x).sum().backward()
    if step == BAD and "alone" in sys.argv:
        optimizer.zero_grad()
    optimizer.step()
digest = [float(value.double().sum()) for value in model.state_dict().values()]
Path(sys.argv[1], f"{rank}.txt").write_text(f"{digest} {torch.rand(2).tolist()}")
dist.destroy_process_group()
