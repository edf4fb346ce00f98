"""Two-rank training of a character model that resumes from a checkpoint."""

import heapq
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
CONTEXT, BATCH, STEPS = 24, 8, 24
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def checkpoint():
    torch.manual_seed(7)
    return CharModel().state_dict()


model = DistributedDataParallel(CharModel())
model.module.load_state_dict(checkpoint(), assign=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
torch.manual_seed(1 + rank)
for step in range(STEPS):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    y = torch.stack([data[i + 1 : i + CONTEXT + 1] for i in starts])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
