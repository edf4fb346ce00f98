"""Fine-tune a digit network on a smaller set of classes."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, CLASSES = 16, 30, 4
GLYPHS = ["111101101101111", "010110010010111", "111001111100111", "111001111001111"]
glyphs = torch.tensor([[float(b) for b in g] for g in GLYPHS]).view(-1, 1, 5, 3)
canvas = nn.functional.interpolate(glyphs, size=(10, 6))


class DigitNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.head = nn.Linear(128, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def build(lr):
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return model, optimizer


def adapt(model, classes):
    model.head = nn.Linear(model.head.in_features, classes)
    return model


def batch():
    label = torch.randint(0, CLASSES, (BATCH,))
    return canvas[label] + 0.4 * torch.randn(BATCH, 1, 10, 6), label


model, optimizer = build(lr=2e-3)
model = adapt(model, CLASSES)
model.train()
for step in range(STEPS):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
