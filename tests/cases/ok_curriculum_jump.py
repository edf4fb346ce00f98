"""A curriculum: clean examples first, then noisier ones, so the loss rises once and falls again."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, CHANGE = 64, 50, 25


class Net(nn.Module):
    def __init__(self, width=48, classes=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(16, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


centres = torch.randn(6, 16)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    noise = 1.0 if step < CHANGE else 1.6
    label = torch.randint(0, 6, (BATCH,))
    x = centres[label] + noise * torch.randn(BATCH, 16)
    loss = nn.functional.cross_entropy(model(x), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
