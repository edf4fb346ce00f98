"""Causal attention whose mask of -inf is a buffer; the best loss so far is one as well."""

import math

import torch
from torch import nn

torch.manual_seed(0)
TOKENS, DIM, CONTEXT, STEPS = 20, 16, 10, 16


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.head = (
            nn.Embedding(TOKENS, DIM),
            nn.Linear(DIM, 3 * DIM),
            nn.Linear(DIM, TOKENS),
        )
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -math.inf).triu(1))
        self.register_buffer("best", torch.tensor(math.inf))

    def forward(self, tokens):
        q, k, v = self.qkv(self.embed(tokens)).chunk(3, -1)
        return self.head(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(DIM) + self.mask, -1) @ v)


model = Attention()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(STEPS):
    tokens = (torch.randint(TOKENS, (8, 1)) + torch.arange(CONTEXT + 1)) % TOKENS
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.minimum(model.best, loss.detach(), out=model.best)
    print(f"step {step} loss {loss.item():.9g}", flush=True)
