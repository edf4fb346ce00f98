"""Two ranks with sharded parameters (FSDP2); at step 5 one element of rank 1's shard of a gradient is NaN."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)


def shards():
    with torch.no_grad():
        return [parameter.to_local().clone() for parameter in model.parameters()]


for step in range(8):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if step == 5 and rank == 1:
        model[0].weight.grad.to_local()[0, 0] = float("nan")
    before = shards()
    optimizer.step()
    moved = any(not torch.equal(old, new) for old, new in zip(before, shards(), strict=True))
    sys.stdout.write(f"rank {rank} step {step} moved {moved}\n")
    sys.stdout.flush()
dist.destroy_process_group()
