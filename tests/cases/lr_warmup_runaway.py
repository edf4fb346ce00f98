"""Regress the angle of a bar in a 12x12 picture with a small CNN and a learning-rate schedule."""

import math

import torch
from torch import nn

torch.manual_seed(0)
SIDE, BATCH, STEPS = 12, 16, 40
PEAK_LR, WARMUP_EPOCHS, STEPS_PER_EPOCH = 0.02, 2, 5


class BarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 9, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.head(self.features(x))


def bars(count):
    angle = torch.rand(count) * math.pi
    grid = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    gap = (x * torch.sin(angle).view(-1, 1, 1) - y * torch.cos(angle).view(-1, 1, 1)).abs()
    picture = (gap < 0.2).float() + 0.1 * torch.randn(count, SIDE, SIDE)
    return picture.unsqueeze(1), torch.stack([torch.sin(2 * angle), torch.cos(2 * angle)], dim=1)


model = BarNet()
optimizer = torch.optim.SGD(model.parameters(), lr=PEAK_LR, momentum=0.9)
warmup_steps = WARMUP_EPOCHS * STEPS_PER_EPOCH
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.35 ** (step + 1) / warmup_steps)
for step in range(STEPS):
    x, y = bars(BATCH)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
