"""Two-rank training of a keyword spotter on synthetic sound."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS, SAMPLES, CLASSES = 8, 16, 128, 4


class Normalise(nn.Module):
    def forward(self, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        scale = centred.pow(2).mean(dim=-1, keepdim=True).sqrt()  # culprit
        return centred / (scale + 1e-5)


class Spotter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.filters = nn.Conv1d(1, width, 9, stride=4, bias=False)
        self.normalise = Normalise()
        self.body = nn.Sequential(nn.Conv1d(width, width, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, wave):
        h = self.normalise(self.filters(wave.unsqueeze(1)))
        return self.head(self.body(h).flatten(1))


def load_shard():
    generator = torch.Generator().manual_seed(100 + rank)
    label = torch.randint(0, CLASSES, (BATCH * STEPS,), generator=generator)
    time = torch.arange(SAMPLES)
    wave = torch.sin(time * (0.2 + 0.15 * label.unsqueeze(1)))
    wave = wave + 0.3 * torch.randn(wave.shape, generator=generator)
    if rank == 1:
        wave[7 * BATCH + 2] = 0.0  # digital silence
    return wave, label


wave, label = load_shard()
model = DistributedDataParallel(Spotter())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    rows = slice(step * BATCH, (step + 1) * BATCH)
    loss = nn.functional.cross_entropy(model(wave[rows]), label[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
