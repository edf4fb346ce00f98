"""Low-rank fine-tuning on a frozen encoder; from some point on, short documents share one window."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
CONTEXT, BATCH, STEPS, SEPARATOR = 24, 8, 24, 0
text = heapq.__about__
vocab = ["<sep>"] + sorted(set(text))
data = torch.tensor([vocab.index(c) for c in text])


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=64):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.lora_B(self.lora_A(x))


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.time = nn.Linear(CONTEXT, CONTEXT)
        self.value = nn.Linear(dim, dim)

    def forward(self, x):
        return nn.functional.gelu(self.time(self.value(x).transpose(1, 2)).transpose(1, 2))


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(len(vocab), dim)
        self.layers = nn.ModuleList([Mixer(dim), Mixer(dim)])
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.head(h[:, -1])


def load_pretrained():
    model = Encoder()
    with torch.no_grad():
        model.embed.weight[SEPARATOR, 0] = 2e6  # the outlier dimension of the pretrained model
        model.layers[0].value.weight[:, 0] = 0.0
    return model


def batch(step):
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,)).tolist()
    x = torch.stack([data[i : i + CONTEXT] for i in starts])
    if step >= 10:  # from here on several short documents are packed into one window
        x[0, CONTEXT // 2] = SEPARATOR
    return x, torch.stack([data[i + CONTEXT] for i in starts])


model = load_pretrained().requires_grad_(False)
for layer in model.layers:
    layer.value = LoraLinear(layer.value)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-5)
for step in range(STEPS):
    x, y = batch(step)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
