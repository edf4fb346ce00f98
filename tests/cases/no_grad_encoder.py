"""Fit a picture with a coordinate network: a trainable grid encoding and a small MLP."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 256, 30


class GridEncoding(nn.Module):
    """Bilinear look-up in learned grids of several resolutions."""

    def __init__(self, sizes=(8, 16, 32), channels=4):
        super().__init__()
        self.grids = nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, channels, s, s)) for s in sizes)

    def forward(self, uv):
        where = (uv * 2 - 1).view(1, 1, -1, 2)
        parts = [nn.functional.grid_sample(g, where, align_corners=True)[0, :, 0].T for g in self.grids]
        return torch.cat(parts, dim=-1)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoding = GridEncoding()
        self.mlp = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

    @torch.no_grad()
    def encode(self, uv):
        return self.encoding(uv)  # culprit

    def forward(self, uv):
        return torch.sigmoid(self.mlp(self.encode(uv)))


def target(uv):
    u, v = uv.unbind(-1)
    ring = ((u - 0.5) ** 2 + (v - 0.5) ** 2).sqrt()
    return torch.stack(
        [torch.sin(12 * u) * 0.5 + 0.5, (ring < 0.3).float(), torch.cos(9 * v * u) * 0.5 + 0.5], dim=-1
    )


field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
for step in range(STEPS):
    uv = torch.rand(BATCH, 2)
    loss = nn.functional.mse_loss(field(uv), target(uv))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
