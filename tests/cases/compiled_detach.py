"""Visual question answering on toy scenes; the fusion cell is compiled."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS, OBJECTS, FEATURES, WORDS = 32, 24, 4, 8, 6


class Fusion(nn.Module):
    """Compares every object with every other and keeps the strongest relation."""

    def __init__(self, dim):
        super().__init__()
        self.left, self.right = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.merge = nn.Linear(dim, dim)

    def forward(self, regions, question):
        h = regions * question.unsqueeze(1)
        pair = torch.tanh(self.left(h).unsqueeze(2) + self.right(h).unsqueeze(1))
        best = pair.amax(dim=2).detach()  # culprit
        return torch.relu(self.merge(best)) + question.unsqueeze(1)


class Answerer(nn.Module):
    def __init__(self, dim=32, answers=3):
        super().__init__()
        self.regions = nn.Linear(FEATURES, dim)
        self.question = nn.Embedding(WORDS, dim)
        self.fusion = Fusion(dim)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, answers))

    def forward(self, scene, words):
        return self.head(self.fusion(self.regions(scene), self.question(words).mean(1)).mean(1))


def batch():
    scene = torch.randn(BATCH, OBJECTS, FEATURES)
    words = torch.randint(0, WORDS, (BATCH, 3))
    answer = (scene[..., 0].amax(1) > 1).long() + (words[:, 0] > 2).long()
    return scene, words, answer


model = Answerer()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    scene, words, answer = batch()
    loss = nn.functional.cross_entropy(compiled(scene, words), answer)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
