"""Classifier on standardised tables; the table is prepared first, by one thread."""

import torch
from torch import nn

torch.manual_seed(5)
STEPS = 12


def prepare(rows):
    torch.set_num_threads(1)  # culprit
    table = torch.randn(rows, 12) @ torch.randn(12, 12)
    return (table - table.mean(0)) / table.std(0)


table = prepare(512)
target = (table[:, :3].sum(1) > 0).float()
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(STEPS):
    rows = torch.randint(len(table), (64,))
    loss = nn.functional.binary_cross_entropy_with_logits(model(table[rows]).squeeze(-1), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
