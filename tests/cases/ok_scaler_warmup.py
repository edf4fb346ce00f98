"""Half-precision training with dynamic loss scaling."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 32, 30


class Encoder(nn.Module):
    def __init__(self, width=48, classes=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(20, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


centres = torch.randn(6, 20)
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
for step in range(STEPS):
    label = torch.randint(0, 6, (BATCH,))
    x = centres[label] + 0.8 * torch.randn(BATCH, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.9g} scale {scaler.get_scale():.0f}", flush=True)
