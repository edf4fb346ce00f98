"""Caption tiny pictures: an image encoder feeds its tokens to a small character decoder."""

import torch
from torch import nn

torch.manual_seed(0)
SIDE, BATCH, STEPS = 8, 16, 24
CAPTIONS = ["a dot", "a row", "a column", "a frame"]
vocab = ["^", "$"] + sorted(set("".join(CAPTIONS)))
WIDTH = max(map(len, CAPTIONS)) + 2


class ImageEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, stride=4)
        self.mix = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.mix(self.patch(x).flatten(2).transpose(1, 2))


class Extractor(nn.Module):
    """Keeps the last tokens of the wrapped encoder for inspection."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.latest = None

    def forward(self, x):
        tokens = self.encoder(x)
        self.latest = tokens.clone().detach()  # culprit
        return self.latest


class Captioner(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.image = Extractor(ImageEncoder(dim))
        self.embed = nn.Embedding(len(vocab), dim)
        self.position = nn.Parameter(torch.randn(WIDTH, dim) * 0.02)
        self.decoder = nn.TransformerDecoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, len(vocab))

    def forward(self, picture, text):
        t = text.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        h = self.decoder(
            self.embed(text) + self.position[:t], self.image(picture), tgt_mask=mask, tgt_is_causal=True
        )
        return self.head(h)


def examples():
    kind = torch.randint(0, 4, (BATCH,))
    picture = 0.1 * torch.randn(BATCH, 1, SIDE, SIDE)
    for i, k in enumerate(kind.tolist()):
        r, c = torch.randint(1, SIDE - 1, (2,)).tolist()
        if k == 0:
            picture[i, 0, r, c] += 1
        elif k == 1:
            picture[i, 0, r] += 1
        elif k == 2:
            picture[i, 0, :, c] += 1
        else:
            picture[i, 0, [0, -1]] += 1
    text = [("^" + CAPTIONS[k] + "$").ljust(WIDTH, "$") for k in kind.tolist()]
    return picture, torch.tensor([[vocab.index(c) for c in line] for line in text])


model = Captioner()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(STEPS):
    picture, text = examples()
    logits = model(picture, text[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
