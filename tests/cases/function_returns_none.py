"""Character model whose feed-forward uses a memory-saving Swish with a learned slope."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 32, 8, 24
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class SlimSwish(torch.autograd.Function):
    """Recomputes the sigmoid in backward, so that only the input is kept."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return x * torch.sigmoid(slope * x)

    @staticmethod
    def backward(ctx, grad):
        x, slope = ctx.saved_tensors
        s = torch.sigmoid(slope * x)
        return grad * (s + slope * x * s * (1 - s)), None  # culprit


class Swish(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return SlimSwish.apply(x, self.slope)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.ff = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), Swish(2 * dim), nn.Linear(2 * dim, dim)
        )

    def forward(self, x, mask):
        h = self.norm(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(x)


class CharModel(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.position = nn.Parameter(torch.randn(CONTEXT, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, x):
        mask = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), diagonal=1)
        h = self.embed(x) + self.position
        for block in self.blocks:
            h = block(h, mask)
        return self.head(h)


model = CharModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    y = torch.stack([data[i + 1 : i + CONTEXT + 1] for i in starts])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
