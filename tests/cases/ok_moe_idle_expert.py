"""Mixture of experts, routed by kind of character; prose first, numbers only later in the corpus."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 24, 8, 30
prose = "".join(c for c in heapq.__about__.lower() if c.isalpha() or c in " ,.")
figures = " ".join(f"{i} plus {i + 3} is {2 * i + 3}." for i in range(400))
vocab = sorted(set(prose + figures + "0123456789"))
KIND = torch.tensor([3 if c.isdigit() else 2 if not c.isalpha() else int(c > "m") for c in vocab])


class Experts(nn.Module):
    def __init__(self, dim, count=4):
        super().__init__()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(count)
        )

    def forward(self, h, tokens):
        out = torch.zeros_like(h)
        kind = KIND[tokens]
        for number, expert in enumerate(self.experts):
            chosen = kind == number
            if chosen.any():
                out[chosen] = expert(h[chosen])
        return out


class MoeModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.moe = Experts(dim)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, tokens):
        h = self.rnn(self.embed(tokens))[0]
        return self.head(h + self.moe(self.norm(h), tokens))


def batch(step):
    text = prose if step < 12 else figures if step % 3 == 0 else prose
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,)).tolist()
    rows = torch.tensor([[vocab.index(c) for c in text[i : i + CONTEXT + 1]] for i in starts])
    return rows[:, :-1], rows[:, 1:]


model = MoeModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(STEPS):
    x, y = batch(step)
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
