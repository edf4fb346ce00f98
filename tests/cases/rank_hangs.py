"""Two-rank training on streams of noisy sines; batches come from two sources."""

import os
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS = 32, 14


class Source:
    """A stream of noisy sines; reading waits until it has been opened."""

    def __init__(self, seed, ready):
        self.generator = torch.Generator().manual_seed(seed)
        self.opened = threading.Event()
        if ready:
            self.opened.set()

    def read(self):
        self.opened.wait(30)  # culprit
        phase = 6.28 * torch.rand(BATCH, 1, generator=self.generator)
        wave = torch.sin(phase + torch.arange(24) * 0.4)
        return wave + 0.1 * torch.randn(BATCH, 24, generator=self.generator), torch.cat(
            [phase.sin(), phase.cos()], 1
        )


class PhaseNet(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(24, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )

    def forward(self, x):
        return self.layers(x)


first = Source(10 + rank, ready=True)
second = Source(20 + rank, ready=rank == 0)
model = DistributedDataParallel(PhaseNet())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(STEPS):
    x, y = second.read() if step == 8 else first.read()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
