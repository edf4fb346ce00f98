"""A classifier in half precision, whose loss scale grows every three steps and falls back."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 32, 48

centres = torch.randn(6, 20)
model = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 6))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=3)
for step in range(STEPS):
    label = torch.randint(0, 6, (BATCH,))
    x = centres[label] + 0.8 * torch.randn(BATCH, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.9g} scale {scaler.get_scale():.0f}", flush=True)
