"""Tag characters of short sentences as vowel, consonant or other; sentences are padded to one length."""

import heapq

import torch
from torch import nn

torch.manual_seed(0)
LENGTH, BATCH, STEPS = 24, 8, 14
sentences = [s.strip().lower()[:LENGTH] for s in heapq.__about__.replace("\n", " ").split(".")]
sentences = [s for s in sentences if s] * 8
sentences[5 * BATCH + 2] = ""  # an empty line of the corpus
alphabet = sorted(set("".join(sentences)))
index = {c: i + 1 for i, c in enumerate(alphabet)}


def label(c):
    return 0 if c in "aeiou" else 1 if c.isalpha() else 2


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, pad):
        mixed, self.last_weights = self.attn(x, x, x, key_padding_mask=pad, need_weights=True)  # culprit
        x = self.norm1(x + mixed)
        return self.norm2(x + self.ff(x))


class Tagger(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(len(alphabet) + 1, dim, padding_idx=0)
        self.position = nn.Parameter(torch.randn(LENGTH, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, 3)

    def forward(self, tokens):
        pad = tokens == 0
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x, pad)
        return self.head(x)


def collate(batch):
    tokens = torch.zeros(len(batch), LENGTH, dtype=torch.long)
    labels = torch.full((len(batch), LENGTH), -100)
    for row, sentence in enumerate(batch):
        for col, c in enumerate(sentence):
            tokens[row, col], labels[row, col] = index[c], label(c)
    return tokens, labels


model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(STEPS):
    tokens, labels = collate(sentences[step * BATCH : (step + 1) * BATCH])
    keep = labels != -100
    loss = nn.functional.cross_entropy(model(tokens)[keep], labels[keep])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
