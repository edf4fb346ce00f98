"""Mixed-precision training of a digit CNN with loss scaling and gradient clipping."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 16, 24
GLYPHS = [
    "111101101101111",
    "010110010010111",
    "111001111100111",
    "111001111001111",
    "101101111001001",
    "111100111001111",
    "111100111101111",
    "111001001001001",
    "111101111101111",
    "111101111001111",
]
glyphs = torch.tensor([[float(b) for b in g] for g in GLYPHS]).view(10, 1, 5, 3)
canvas = nn.functional.interpolate(glyphs, size=(10, 6))


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


model = DigitNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
for step in range(STEPS):
    label = torch.randint(0, 10, (BATCH,))
    x = canvas[label] + 0.3 * torch.randn(BATCH, 1, 10, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # culprit
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
