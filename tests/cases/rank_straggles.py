"""Two-rank training of a stripe classifier with noise textures from a remote store."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS = 16, 30
LATENCY = [0.002, 0.15]


class Augment(nn.Module):
    """Adds noise textures that are fetched from a remote store."""

    def fetch(self, shape):
        time.sleep(LATENCY[rank])
        return torch.randn(shape)

    def forward(self, x):
        return x + 0.2 * self.fetch(x.shape) if self.training else x


class StripeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.augment = Augment()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.conv(self.augment(x)).flatten(1))


def batch():
    kind = torch.randint(0, 3, (BATCH,))
    y, x = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    stripes = torch.stack([torch.sin(x * 1.0), torch.sin(y * 1.0), torch.sin((x + y) * 0.7)])
    return stripes[kind].unsqueeze(1), kind


torch.manual_seed(1 + rank)
model = DistributedDataParallel(StripeNet())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
