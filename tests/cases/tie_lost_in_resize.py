"""Train a small language model whose head and embedding share their weights, with a few more tokens."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 16, 16, 24
text = heapq.__about__.lower()
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(vocab), bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def resize(model, count):
    old = model.embed
    new = nn.Embedding(count, old.embedding_dim)
    with torch.no_grad():
        new.weight[: old.num_embeddings] = old.weight
    model.embed = new  # culprit


def batch():
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    rows = torch.stack([data[i : i + CONTEXT + 1] for i in starts])
    return rows[:, :-1], rows[:, 1:]


def build():
    model = CharModel()
    resize(model, len(vocab) + 2)
    return model


model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
