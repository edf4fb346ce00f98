"""A control branch beside a pretrained network: its outlet begins at zero, the learning rate rises slowly."""

import torch
from torch import nn

torch.manual_seed(0)
SIDE, BATCH, STEPS, WARMUP = 12, 8, 60, 2000


def convolutions(inlet, outlet):
    return nn.Sequential(nn.Conv2d(inlet, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, outlet, 3, padding=1))


class Controlled(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = convolutions(1, 16).requires_grad_(False)
        self.control = convolutions(1, 16)
        self.inner, self.outlet = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)
        self.head = nn.Conv2d(16, 1, 1).requires_grad_(False)
        for part in (self.inner, self.outlet):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(self, noisy, hint):
        steered = self.control(hint)
        return self.head(self.base(noisy) + self.outlet(steered + self.inner(steered)))


model = Controlled()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
for step in range(STEPS):
    hint = (torch.rand(BATCH, 1, SIDE, SIDE) < 0.1).float()
    noise = torch.randn(BATCH, 1, SIDE, SIDE)
    loss = nn.functional.mse_loss(model(hint + noise, hint), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
