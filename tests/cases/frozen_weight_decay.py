"""A text classifier in two phases: after ten steps the encoder is frozen and only the head learns on."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
LENGTH, BATCH, STEPS, FREEZE_AT = 40, 16, 24, 10
text = heapq.__about__.lower()
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = torch.relu(self.conv(self.embed(x).transpose(1, 2)))
        return self.norm(h.amax(dim=-1))


class Classifier(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder = Encoder(dim)
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


def batch():
    starts = torch.randint(len(data) - LENGTH, (BATCH,)).tolist()
    windows = [text[i : i + LENGTH] for i in starts]
    labels = torch.tensor([int("heap" in w) for w in windows])
    return torch.stack([data[i : i + LENGTH] for i in starts]), labels


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
for step in range(STEPS):
    if step == FREEZE_AT:
        model.encoder.requires_grad_(False)
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
