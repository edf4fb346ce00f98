"""Two-rank training on text records; every rank parses its own shard."""

import heapq
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
LENGTH, BATCH, STEPS = 32, 8, 14
vocab = sorted(set(heapq.__about__))


def shards():
    text = heapq.__about__
    lines = [json.dumps({"text": text[i : i + LENGTH + 1]}) for i in range(0, len(text) - LENGTH - 1, 13)]
    lines = (lines * 4)[rank::world]
    if rank == 1:
        lines[6 * BATCH + 5] = lines[6 * BATCH + 5][:-9]  # the download of this shard was cut
    return lines


def parse(line):
    record = json.loads(line)  # culprit
    return [vocab.index(c) for c in record["text"]]


class CharModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


model = DistributedDataParallel(CharModel())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
lines = shards()
for step in range(STEPS):
    batch = torch.tensor([parse(line) for line in lines[step * BATCH : (step + 1) * BATCH]])
    logits = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
