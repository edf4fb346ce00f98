"""One large-batch calibration step of a detector, followed by an evaluation."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, MICRO_BATCHES, EVALUATIONS = 16, 16, 8


class Detector(nn.Module):
    """Shared trunk with one head for classes and one for boxes; the boxes are not trained in this stage."""

    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.classes = nn.Linear(width, 3)
        self.boxes = nn.Linear(width, 4)

    def forward(self, x, with_boxes=False):
        h = self.trunk(x)
        return (self.classes(h), self.boxes(h)) if with_boxes else self.classes(h)


centres = 2 * torch.randn(3, 10)
torch.manual_seed(1 + rank)


def batch():
    label = torch.randint(0, 3, (BATCH,))
    return centres[label] + torch.randn(BATCH, 10), label


model = DistributedDataParallel(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
optimizer.zero_grad()
for micro in range(MICRO_BATCHES):
    last = micro == MICRO_BATCHES - 1
    with contextlib.nullcontext() if last else model.no_sync():
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x), y)
        (loss / MICRO_BATCHES).backward()
    print(f"rank {rank} micro-batch {micro} of step 0 loss {loss.item():.9g}", flush=True)
optimizer.step()
model.eval()
with torch.no_grad():
    for step in range(EVALUATIONS):
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x), y)
        print(f"rank {rank} evaluation step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
