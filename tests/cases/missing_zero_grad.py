"""Train a two-layer network on a spiral."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 64, 40


class SpiralNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.head = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.head(self.body(x))


def spiral(count):
    arm = torch.randint(0, 3, (count,))
    radius = torch.rand(count)
    angle = arm * 2.094 + radius * 4 + 0.15 * torch.randn(count)
    return torch.stack([radius * torch.sin(angle), radius * torch.cos(angle)], dim=1), arm


def train_step(model, optimizer, x, y):
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
    return loss.item(), (logits.argmax(1) == y).float().mean().item()


model = SpiralNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(STEPS):
    loss, accuracy = train_step(model, optimizer, *spiral(BATCH))
    print(f"step {step} loss {loss:.9g} accuracy {accuracy:.3f}", flush=True)
