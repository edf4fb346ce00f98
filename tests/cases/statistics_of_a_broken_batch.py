"""Small CNN; before training, a pass over some batches settles the batch statistics."""

import torch
from torch import nn

torch.manual_seed(0)
STEPS = 16


def batch(broken=False):
    label = torch.randint(4, (16,))
    image = 0.3 * torch.randn(16, 1, 8, 8)
    image[torch.arange(16), 0, label * 2] += 1
    return (image * 1e30 if broken else image), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 64, 4)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


model = Net()
with torch.no_grad():
    for index in range(4):
        model(batch(broken=index == 2)[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(STEPS):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
