"""Regression with observers of each layer's range, which begin at +inf and -inf as for quantisation."""

import math

import torch
from torch import nn

torch.manual_seed(0)
STEPS = 16


class Observed(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.register_buffer("lowest", torch.tensor(math.inf))
        self.register_buffer("highest", torch.tensor(-math.inf))
        self.register_buffer("unused", torch.empty(0))

    def forward(self, x):
        out = self.linear(x)
        if self.training and self.linear.out_features > 1:
            self.lowest = torch.minimum(self.lowest, out.detach().amin())
            self.highest = torch.maximum(self.highest, out.detach().amax())
        return out


model = nn.Sequential(Observed(6, 24), nn.ReLU(), Observed(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(STEPS):
    x = torch.rand(32, 6)
    loss = nn.functional.mse_loss(model(x).squeeze(-1), x.prod(1) * 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
