"""Character model whose output layer shares its matrix with the embedding."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 32, 8, 30
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class TiedModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.layers = nn.ModuleList(nn.GRU(dim, dim, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(vocab), bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = h + layer(h)[0]
        return self.head(self.norm(h))


model = TiedModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    y = torch.stack([data[i + 1 : i + CONTEXT + 1] for i in starts])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
