"""Train a small character model; a moving average of the weights is saved now and then."""

import heapq
import io

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS, EVERY = 16, 16, 26, 10
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


class Average:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = [parameter.detach().clone() for parameter in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for slow, parameter in zip(self.shadow, model.parameters()):
            slow.lerp_(parameter, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model):
        for slow, parameter in zip(self.shadow, model.parameters()):
            parameter.copy_(slow)


def batch():
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    rows = torch.stack([data[i : i + CONTEXT + 1] for i in starts])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def save(model, average):
    average.copy_to(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)  # culprit
    return file.getvalue()


model = CharModel()
average = Average(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(STEPS):
    loss = loss_of(model, *batch())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
    print(f"step {step} loss {loss.item():.9g}", flush=True)
    if step % EVERY == EVERY - 1:
        save(model, average)
