"""Residual CNN on synthetic digits; every stage is checkpointed to save memory."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
BATCH, STEPS = 16, 20
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
glyphs = torch.tensor([[float(b) for b in g] for g in GLYPHS]).view(10, 1, 5, 3)
canvas = nn.functional.interpolate(glyphs, size=(10, 6))


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        h = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(h)))


class ResNet(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.stages = nn.ModuleList(Stage(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        for stage in self.stages:
            h = checkpoint(stage, h, use_reentrant=False)  # culprit
        return self.head(h.mean(dim=(2, 3)))


model = ResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(STEPS):
    label = torch.randint(0, 10, (BATCH,))
    x = canvas[label] * (1 + 0.05 * step) + 0.3 * torch.randn(BATCH, 1, 10, 6)
    loss = nn.functional.cross_entropy(model(x), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
