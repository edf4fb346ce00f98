"""Next-character model with a copy head over the characters of the context; easy windows come first."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 48, 8, 20
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(b, t, d)
        )
        return x + self.ff(self.norm2(x))


class CopyHead(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, len(vocab))

    def forward(self, h, context, target):
        seen = torch.zeros(h.size(0), len(vocab)).scatter_(1, context, 1.0)
        weight = torch.softmax(self.score(h), dim=-1) * seen
        prob = weight / weight.sum(-1, keepdim=True)
        return torch.log(prob.gather(1, target.unsqueeze(1)))  # culprit


class CopyModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.position = nn.Parameter(torch.randn(CONTEXT, dim) * 0.02)
        self.blocks = nn.Sequential(Block(dim, 4), Block(dim, 4))
        self.norm = nn.LayerNorm(dim)
        self.head = CopyHead(dim)

    def forward(self, context, target):
        h = self.norm(self.blocks(self.embed(context) + self.position))
        return -self.head(h[:, -1], context, target).mean()


starts = torch.randperm(len(data) - CONTEXT - 1).tolist()
easy = [i for i in starts if data[i + CONTEXT] in data[i : i + CONTEXT]]
rest = [i for i in starts if data[i + CONTEXT] not in data[i : i + CONTEXT]]
order = easy[: 9 * BATCH] + rest[:BATCH] + easy[9 * BATCH :]
model = CopyModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(STEPS):
    batch = order[step * BATCH : (step + 1) * BATCH]
    context = torch.stack([data[i : i + CONTEXT] for i in batch])
    target = torch.stack([data[i + CONTEXT] for i in batch])
    loss = model(context, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
