"""Two-rank character model with gradient accumulation."""

import heapq
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
CONTEXT, BATCH, STEPS, MICRO_STEPS = 24, 4, 20, 3
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.position = nn.Parameter(torch.randn(CONTEXT, dim) * 0.02)
        self.blocks = nn.Sequential(Block(dim), Block(dim))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(vocab)))

    def forward(self, x, y):
        logits = self.head(self.blocks(self.embed(x) + self.position))
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def batch():
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    return (
        torch.stack([data[i : i + CONTEXT] for i in starts]),
        torch.stack([data[i + 1 : i + CONTEXT + 1] for i in starts]),
    )


model = DistributedDataParallel(CharModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
torch.manual_seed(1 + rank)
for step in range(STEPS):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(MICRO_STEPS):
        loss = model(*batch()) / MICRO_STEPS
        total += loss.item()
        model.require_backward_grad_sync = micro == MICRO_STEPS - 1
        loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {total:.9g}", flush=True)
dist.destroy_process_group()
