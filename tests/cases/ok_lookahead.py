"""Train a small character model; every few steps the weights go back half of the way (lookahead)."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS, EVERY = 16, 16, 36, 8
text = heapq.__about__.lower()
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class Lookahead:
    def __init__(self, model, alpha=0.5):
        self.alpha = alpha
        self.slow = [parameter.detach().clone() for parameter in model.parameters()]

    @torch.no_grad()
    def sync(self, model):
        for slow, parameter in zip(self.slow, model.parameters()):
            slow.lerp_(parameter, self.alpha)
            parameter.copy_(slow)


def batch():
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    rows = torch.stack([data[i : i + CONTEXT + 1] for i in starts])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


model = CharModel()
lookahead = Lookahead(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(STEPS):
    loss = loss_of(model, *batch())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
    if step % EVERY == EVERY - 1:
        lookahead.sync(model)
