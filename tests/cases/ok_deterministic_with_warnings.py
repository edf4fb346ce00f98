"""Graph layer that sums over neighbours; where an operator has no deterministic form, a warning will do."""

import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.manual_seed(3)
NODES, EDGES, STEPS = 40, 160, 12


class Neighbours(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own, self.other = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, source, target):
        gathered = torch.zeros_like(x).index_add(0, target, self.other(x)[source])
        return torch.relu(self.own(x) + gathered / 4)


source, target = torch.randint(NODES, (2, EDGES))
first, second, head = Neighbours(16), Neighbours(16), nn.Linear(16, 3)
parameters = [*first.parameters(), *second.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-2)
features, label = torch.randn(NODES, 16), torch.randint(3, (NODES,))
for step in range(STEPS):
    noisy = features + 0.1 * torch.randn_like(features)
    loss = nn.functional.cross_entropy(head(second(first(noisy, source, target), source, target)), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
