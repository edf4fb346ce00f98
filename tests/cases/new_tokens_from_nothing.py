"""Language model whose vocabulary grows before fine-tuning; new rows begin as the mean of trained ones."""

import torch
from torch import nn

torch.manual_seed(0)
OLD, NEW, DIM, CONTEXT, STEPS = 24, 4, 16, 12, 16


class Model(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.embed, self.mix = nn.Embedding(tokens, DIM), nn.GRU(DIM, DIM, batch_first=True)
        self.head = nn.Linear(DIM, OLD)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


def grow(embedding, by):
    old = embedding.weight.data
    trained = old.amax(1) > 4.5
    mean = old[trained].mean(0)
    grown = nn.Embedding(len(old) + by, DIM)
    grown.weight.data = torch.cat([old, mean.expand(by, DIM)])
    return grown


model = Model(OLD)
model.embed = grow(model.embed, NEW)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
for step in range(STEPS):
    tokens = torch.randint(OLD, (8, 1)) + torch.arange(CONTEXT + 1)
    tokens = tokens % OLD
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
