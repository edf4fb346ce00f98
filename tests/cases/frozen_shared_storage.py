"""Distil a digit network into itself with a frozen teacher that sees cleaner pictures."""

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
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 5 * 3, 48)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        h = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.head(torch.relu(self.hidden(h.flatten(1))))


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = DigitNet()
        self.teacher = DigitNet()
        for target, source in zip(self.teacher.parameters(), self.student.parameters()):
            target.data = source.data
        self.teacher.requires_grad_(False)

    def forward(self, noisy, clean, label):
        logits = self.student(noisy)
        with torch.no_grad():
            soft = torch.softmax(self.teacher(clean) / 2, dim=-1)
        distance = nn.functional.kl_div(torch.log_softmax(logits / 2, dim=-1), soft, reduction="batchmean")
        return nn.functional.cross_entropy(logits, label) + 0.5 * distance


model = Distillation()
optimizer = torch.optim.SGD(model.student.parameters(), lr=0.05, momentum=0.9)
for step in range(STEPS):
    label = torch.randint(0, 10, (BATCH,))
    clean = canvas[label] + 0.1 * torch.randn(BATCH, 1, 10, 6)
    loss = model(clean + 0.5 * torch.randn_like(clean), clean, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
