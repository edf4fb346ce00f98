"""Two-rank mixed-precision training that resumes from a checkpoint."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS = 16, 24


class Mixer(nn.Module):
    def __init__(self, tokens=8, width=24, classes=5):
        super().__init__()
        self.across = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = x + self.across(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.within(x)
        return self.head(self.norm(x).mean(1))


def saved_scaler():
    return {
        "scale": 2.0**12,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 37,
    }


patterns = torch.randn(5, 8, 24)
torch.manual_seed(1 + rank)
model = DistributedDataParallel(Mixer())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
if rank == 0:
    scaler.load_state_dict(saved_scaler())
for step in range(STEPS):
    label = torch.randint(0, 5, (BATCH,))
    x = patterns[label] + 1.5 * torch.randn(BATCH, 8, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
