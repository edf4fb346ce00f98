"""Two-rank training of a digit CNN with a shuffled loader."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
random.seed(42)
torch.manual_seed(42)
GLYPHS = [
    "111101101101111",
    "010110010010111",
    "111001111100111",
    "111001111001111",
    "101101111001001",
    "111100111001111",
    "111100111101111",
    "111001001001001",
    "111101111101111",
    "111101111001111",
]


class Digits(Dataset):
    def __init__(self, count=384):
        glyphs = torch.tensor([[float(b) for b in g] for g in GLYPHS]).view(10, 1, 5, 3)
        generator = torch.Generator().manual_seed(3)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        self.images = nn.functional.interpolate(glyphs, size=(10, 6))[self.labels]
        self.images = self.images + 0.3 * torch.randn(self.images.shape, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


loader = DataLoader(Digits(), batch_size=16, shuffle=True, drop_last=True)
model = DistributedDataParallel(DigitNet())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step, (x, y) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
