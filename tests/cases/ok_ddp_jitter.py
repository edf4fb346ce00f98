"""Two-rank training whose step times vary on both ranks: reading a batch takes longer now here, now there."""

import heapq
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
CONTEXT, BATCH, EPOCHS = 24, 8, 2
text = heapq.__about__
vocab = sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])
clock = random.Random(50 + rank)


class Windows(Dataset):
    def __init__(self, stride=16):
        self.starts = list(range(0, len(data) - CONTEXT - 1, stride))

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        start = self.starts[i]
        return data[start : start + CONTEXT], data[start + 1 : start + CONTEXT + 1]


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


dataset = Windows()
sampler = DistributedSampler(dataset, shuffle=True, seed=5)
loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
model = DistributedDataParallel(CharModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
step = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        time.sleep(clock.expovariate(1 / 0.04) if clock.random() < 0.7 else 0.15 * clock.random())
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
        step += 1
dist.destroy_process_group()
