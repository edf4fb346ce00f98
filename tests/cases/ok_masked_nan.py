"""Regression with a log-gated layer."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 32, 30


class LogPositive(nn.Module):
    def forward(self, x):
        return torch.log(torch.relu(x))


class GatedNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.drop = nn.Dropout(0.3)
        self.log = LogPositive()
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.stem(x)
        gated = torch.where(self.drop(h) > 0, self.log(h), torch.zeros(()))
        return self.head(self.norm(gated)).squeeze(-1)


weights = torch.randn(8)
model = GatedNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(STEPS):
    x = torch.randn(BATCH, 8)
    y = torch.tanh(x @ weights / 3)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
