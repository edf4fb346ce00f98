"""Contrastive learning of two views of synthetic digits with a learned temperature."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 16, 24
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


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 16, 3, stride=2), nn.GELU()
        )
        self.proj = nn.Linear(16 * 4 * 2, dim)

    def forward(self, x):
        return nn.functional.normalize(self.proj(self.conv(x).flatten(1)), dim=-1)


class Contrastive(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder = Encoder(dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        scale = self.logit_scale.exp().clamp(max=100).item()  # culprit
        logits = scale * self.encoder(a) @ self.encoder(b).T
        target = torch.arange(len(a))
        return (
            nn.functional.cross_entropy(logits, target) + nn.functional.cross_entropy(logits.T, target)
        ) / 2


def view(x):
    return x * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.2 * torch.randn_like(x)


model = Contrastive()
optimizer = torch.optim.AdamW(
    [{"params": model.encoder.parameters()}, {"params": [model.logit_scale], "weight_decay": 0.0}], lr=2e-3
)
for step in range(STEPS):
    x = canvas[torch.randperm(10)[:8]].repeat(2, 1, 1, 1) + 0.3 * torch.randn(BATCH, 1, 10, 6)
    loss = model(view(x), view(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g} scale {model.logit_scale.item():.4f}", flush=True)
