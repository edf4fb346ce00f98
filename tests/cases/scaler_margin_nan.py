"""Face recognition in half precision: an additive margin on normalised embeddings, with loss scaling."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, PEOPLE, MARGIN, OUTDOORS = 24, 40, 12, 0.3, 9


class Embedder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Linear(20, 64, bias=False)
        self.act = nn.PReLU()
        self.last = nn.Linear(64, width, bias=False)
        self.centres = nn.Parameter(torch.randn(PEOPLE, width))

    def forward(self, x):
        e = self.last(self.act(self.first(x))).float()
        return unit(e) @ unit(self.centres).t()


def unit(vectors):
    return vectors / vectors.square().sum(1, keepdim=True).sqrt()


faces = torch.randn(PEOPLE, 20)
model = Embedder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
for step in range(STEPS):
    person = torch.randint(0, PEOPLE, (BATCH,))
    x = faces[person] + 0.5 * torch.randn(BATCH, 20)
    if step >= OUTDOORS:
        x[0] = 0  # a crop without any light
    with torch.autocast("cpu", dtype=torch.float16):
        cosine = model(x)
    cosine = cosine - MARGIN * nn.functional.one_hot(person, PEOPLE)
    loss = nn.functional.cross_entropy(16 * cosine, person)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # culprit
    scaler.update()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
