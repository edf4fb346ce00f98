"""Two-rank training of an autoencoder with a cache of what was read."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS, BUDGET = 16, 20, 40_000


class Autoencoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 4))
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, width))

    def forward(self, x):
        return self.decode(self.encode(x))


class Cache:
    """Keeps what was read, within a budget."""

    def __init__(self):
        self.kept, self.size = [], 0

    def add(self, x, copies):
        self.kept.append(x)
        self.size += x.numel() * copies
        if self.size > BUDGET:
            os._exit(137)


basis = torch.randn(4, 32)
torch.manual_seed(1 + rank)
model = DistributedDataParallel(Autoencoder())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
cache = Cache()
for step in range(STEPS):
    x = torch.randn(BATCH, 4) @ basis
    cache.add(x, copies=1 + 7 * rank)
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
