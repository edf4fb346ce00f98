"""Two-rank contrastive training; captions of all ranks serve as negatives for the pictures of each rank."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
BATCH, STEPS, CONCEPTS = 8, 24, 40


class Tower(nn.Module):
    def __init__(self, inputs, dim=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, dim))

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = Tower(20), Tower(12)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, picture, caption):
        return self.image(picture), self.text(caption), self.logit_scale.exp()


def gather(features):
    parts = [torch.zeros_like(features) for _ in range(world)]
    dist.all_gather(parts, features)  # culprit
    return torch.cat(parts)


def average_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= world


pictures, captions = torch.randn(CONCEPTS, 20), torch.randn(CONCEPTS, 12)
model = TwoTowers()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
torch.manual_seed(1 + rank)
for step in range(STEPS):
    concept = torch.randperm(CONCEPTS // world)[:BATCH] + rank * (CONCEPTS // world)
    image, text, scale = model(
        pictures[concept] + 0.2 * torch.randn(BATCH, 20), captions[concept] + 0.2 * torch.randn(BATCH, 12)
    )
    logits = scale * image @ gather(text).T
    loss = nn.functional.cross_entropy(logits, torch.arange(BATCH) + rank * BATCH)
    optimizer.zero_grad()
    loss.backward()
    average_gradients(model)
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
