"""Two tasks; the second has a weight of its own, raised from zero only after a while."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, BEGIN = 32, 60, 35


class TwoTasks(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.classes = nn.Linear(width, 4)
        self.depth = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.spare = nn.Linear(width, 2)  # of a task that this run has no labels for

    def forward(self, x):
        h = self.trunk(x)
        unused = sum(parameter.sum() for parameter in self.spare.parameters())
        return self.classes(h) + 0.0 * unused, self.depth(h).squeeze(1)


teacher = torch.randn(12, 4)
model = TwoTasks()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    weight = 0.0 if step < BEGIN else min(1.0, (step - BEGIN + 1) / 10)
    x = torch.randn(BATCH, 12)
    logits, depth = model(x)
    target = x @ teacher
    main = nn.functional.cross_entropy(logits, target.argmax(1))
    aside = nn.functional.mse_loss(depth, target[:, 0])
    loss = main + weight * aside
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
