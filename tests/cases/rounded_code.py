"""Learned compression of toy signals: an encoder, a quantised code, a decoder."""

import torch
from torch import nn

torch.manual_seed(0)
LENGTH, BATCH, STEPS = 32, 32, 40


class Codec(nn.Module):
    def __init__(self, code=8, width=48):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(LENGTH, width), nn.GELU(), nn.Linear(width, code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.GELU(), nn.Linear(width, LENGTH))

    def quantise(self, z):
        soft = torch.tanh(z) * 4
        hard = torch.round(soft)
        return torch.round((hard - soft).detach() + soft)  # culprit

    def forward(self, x):
        return self.decoder(self.quantise(self.encoder(x)))


def batch():
    time = torch.linspace(0, 1, LENGTH)
    frequency, phase = 1 + 4 * torch.rand(BATCH, 1), 6.28 * torch.rand(BATCH, 1)
    return torch.sin(6.28 * frequency * time + phase)


model = Codec()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(STEPS):
    x = batch()
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
