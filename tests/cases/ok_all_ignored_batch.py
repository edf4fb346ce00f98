"""Sequence labelling in which a few batches hold no labelled token at all."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 24, 8, 24
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])
capital = torch.tensor([int(c.isupper()) for c in vocab])


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, 2)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def batch(step):
    starts = torch.randint(len(data) - CONTEXT, (BATCH,)).tolist()
    tokens = torch.stack([data[i : i + CONTEXT] for i in starts])
    labels = capital[tokens]
    labels[torch.rand(BATCH, CONTEXT) < 0.3] = -100
    if step in (7, 15):
        labels[:] = -100
    return tokens, labels


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(STEPS):
    tokens, labels = batch(step)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
