"""Continued training with low-rank factors, merged and begun anew; the first pair must change nothing."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 16, 8, 40
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class RestartedLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=16):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        self.scale = alpha / rank
        self.restart()

    @torch.no_grad()
    def restart(self):
        self.base.weight += self.scale * self.lora_B.weight @ self.lora_A.weight
        nn.init.zeros_(self.lora_B.weight)
        nn.init.zeros_(self.lora_A.weight)  # culprit

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_B(self.lora_A(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim).requires_grad_(False)
        self.time = nn.Linear(CONTEXT, CONTEXT).requires_grad_(False)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.time(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim).requires_grad_(False)
        self.blocks = nn.ModuleList([Block(dim), Block(dim)])
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h[:, -1])


model = Model()
for block in model.blocks:
    block.mlp[0], block.mlp[2] = RestartedLinear(block.mlp[0]), RestartedLinear(block.mlp[2])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(STEPS):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    y = torch.stack([data[i + CONTEXT] for i in starts])
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
