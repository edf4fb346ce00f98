"""Self-supervision without negatives: a target network follows by moving average, without gradient."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
BATCH, STEPS = 32, 30
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


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2),
            nn.ReLU(),
        )
        self.proj = nn.Linear(16 * 4 * 2, dim)

    def forward(self, x):
        return self.proj(self.conv(x).flatten(1))


class Byol(nn.Module):
    def __init__(self, dim=32, decay=0.98):
        super().__init__()
        self.online = Encoder(dim)
        self.predictor = nn.Sequential(nn.Linear(dim, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.decay = decay

    def forward(self, a, b):
        with torch.no_grad():
            goal_a, goal_b = self.target(a), self.target(b)
        guess_a, guess_b = self.predictor(self.online(a)), self.predictor(self.online(b))
        cosine = nn.functional.cosine_similarity
        return 2 - cosine(guess_a, goal_b).mean() - cosine(guess_b, goal_a).mean()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters()):
            slow.mul_(self.decay).add_(fast, alpha=1 - self.decay)


def view(x):
    shift = int(torch.randint(-1, 2, ()))
    return torch.roll(x, shift, dims=3) * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.2 * torch.randn_like(
        x
    )


model = Byol()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
for step in range(STEPS):
    x = canvas[torch.randint(0, 10, (BATCH,))]
    loss = model(view(x), view(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.follow()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
