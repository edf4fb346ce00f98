"""Contrastive training of an image tower and a text tower on toy pictures and captions."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, SIDE, LENGTH = 16, 30, 8, 12
SHAPES, PLACES = ["dot", "row", "column", "frame"], ["dark", "dim", "bright", "glaring"]
vocab = ["_"] + sorted(set("".join(SHAPES + PLACES) + " "))


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 32, 3, stride=2), nn.GELU()
        )
        self.proj = nn.Linear(32 * 9, dim)

    def forward(self, pixels):
        return self.proj(self.conv(pixels).flatten(1))


class TextTower(nn.Module):
    """Fixed word vectors plus a small learned correction."""

    def __init__(self, dim, residual_scale=1e-4):
        super().__init__()
        self.register_buffer("vectors", torch.randn(len(vocab), dim))
        self.layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True)
        self.proj = nn.Linear(dim, dim)
        self.residual_scale = residual_scale

    def forward(self, tokens):
        words = self.vectors[tokens]
        return words.mean(1) + self.residual_scale * self.proj(self.layer(words)).mean(1)


class TwoTowers(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.image, self.text = ImageTower(dim), TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, pixels, tokens):
        a, b = self.image(pixels), self.text(tokens)
        logits = self.logit_scale.exp() * a @ b.T / a.size(1) ** 0.5
        target = torch.arange(len(a))
        return (
            nn.functional.cross_entropy(logits, target) + nn.functional.cross_entropy(logits.T, target)
        ) / 2


def batch():
    shape, place = torch.randperm(16).div(4, rounding_mode="floor"), torch.randperm(16) % 4
    picture = 0.1 * torch.randn(BATCH, 1, SIDE, SIDE)
    for i, (s, p) in enumerate(zip(shape.tolist(), place.tolist())):
        where = [(0, 3, 3), (0, 3), (0, slice(None), 4), (0, [0, -1])][s]
        picture[i][where] += 0.5 * (p + 1)
    text = [
        f"{SHAPES[s]} {PLACES[p]}".ljust(LENGTH, "_")[:LENGTH] for s, p in zip(shape.tolist(), place.tolist())
    ]
    return picture, torch.tensor([[vocab.index(c) for c in line] for line in text])


model = TwoTowers()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(STEPS):
    loss = model(*batch())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
