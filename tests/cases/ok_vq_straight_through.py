"""Vector-quantised autoencoder of noisy waves with a straight-through gradient."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, LENGTH = 32, 40, 32


class Quantiser(nn.Module):
    def __init__(self, codes=24, dim=8):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -0.5, 0.5)

    def forward(self, z):
        nearest = torch.cdist(z.flatten(0, 1), self.codebook.weight).argmin(dim=1).view(z.shape[:2])
        q = self.codebook(nearest)
        penalty = (q - z.detach()).pow(2).mean() + 0.25 * (z - q.detach()).pow(2).mean()
        return z + (q - z).detach(), penalty


class VqAutoencoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv1d(16, dim, 4, stride=2, padding=1)
        )
        self.quantiser = Quantiser(dim=dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(dim, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, wave):
        z = self.encoder(wave.unsqueeze(1)).transpose(1, 2)
        q, penalty = self.quantiser(z)
        out = self.decoder(q.transpose(1, 2)).squeeze(1)
        return nn.functional.mse_loss(out, wave) + penalty


model = VqAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(STEPS):
    time = torch.arange(LENGTH) * 0.4
    wave = torch.sin(time * (0.5 + torch.rand(BATCH, 1)) + 6.28 * torch.rand(BATCH, 1)) + 0.05 * torch.randn(
        BATCH, LENGTH
    )
    loss = model(wave)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
