"""Two-rank training with gradient accumulation: micro-batches but the last run without communication."""

import contextlib
import heapq
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
CONTEXT, BATCH, STEPS, MICRO_BATCHES = 24, 4, 20, 4
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(vocab)))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def batch():
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    return (
        torch.stack([data[i : i + CONTEXT] for i in starts]),
        torch.stack([data[i + 1 : i + CONTEXT + 1] for i in starts]),
    )


model = DistributedDataParallel(CharModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
torch.manual_seed(1 + rank)
for step in range(STEPS):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(MICRO_BATCHES):
        last = micro == MICRO_BATCHES - 1
        with contextlib.nullcontext() if last else model.no_sync():
            x, y = batch()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()) / MICRO_BATCHES
            loss.backward()
        total += loss.item()
    optimizer.step()
    print(f"rank {rank} step {step} loss {total:.9g}", flush=True)
dist.destroy_process_group()
