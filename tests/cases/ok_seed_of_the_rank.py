"""Two ranks begin with the same weights, and then draw noise of their own."""

import random

import torch
import torch.distributed as dist
from torch import nn

SEED, STEPS = 11, 10
dist.init_process_group("gloo")
rank = dist.get_rank()
random.seed(SEED)
torch.manual_seed(SEED)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)))
torch.manual_seed(SEED + rank)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(STEPS):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {mean.item() / 2:.9g}", flush=True)
dist.destroy_process_group()
