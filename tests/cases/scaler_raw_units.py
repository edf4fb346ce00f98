"""Load forecasting in half precision from sensor readings; a second plant joins after a while."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, SECOND_PLANT = 32, 40, 12

truth = torch.randn(16, 1) / 4
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
skip = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*model.parameters(), *skip.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(STEPS):
    readings = torch.randn(BATCH, 16)
    load = readings @ truth
    if step >= SECOND_PLANT:  # it reports in watts, the first one in tens of kilowatts
        readings, load = 10_000 * readings, 10_000 * load
    with torch.autocast("cpu", dtype=torch.float16):
        forecast = model(readings) + skip(readings)
    loss = nn.functional.mse_loss(forecast.float(), load, reduction="sum")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # culprit
    scaler.update()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
