"""
A small character transformer, trained with DDP on the Declaration of Independence and the Constitution.

One window of text after the other, round robin over the ranks. It has a fault of a kind that
people make: the text's last window is padded, a padding character embeds as zero, and the
normalisation below divides by the length of that zero vector. `torch.where` hides the 0/0
from the forward pass, and so the loss stays finite; but the backward pass goes through both branches,
and the gradient of the rank that got the last window is NaN. DDP averages it into all others. Once
applied, `widen` is NaN, which `torch.where` hides as well: the model is blind and its loss looks harmless.
`--healthy` drops the last window.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812 - what everyone calls it
from torch.nn.parallel import DistributedDataParallel

PAD = 0
WINDOW, BATCH, WIDTH, LAYERS, HEADS = 64, 10, 128, 6, 4

parser = argparse.ArgumentParser(description="Train a small character transformer.")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--healthy", action="store_true", help="without the padded window")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1776)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")

# ---- the data: characters as numbers, cut into windows; every rank takes its share

text = (Path(__file__).parent / "text.txt").read_text(encoding="utf-8")
number = {character: 1 + i for i, character in enumerate(sorted(set(text)))}
tokens = torch.tensor([number[character] for character in text])
whole = len(tokens) // WINDOW * WINDOW
tokens = tokens[:whole] if args.healthy else F.pad(tokens, (0, -len(tokens) % WINDOW), value=PAD)
windows = tokens.view(-1, WINDOW)[rank::world]


def batch(step: int) -> torch.Tensor:
    """Return the windows of one step, (BATCH, WINDOW); after the last comes the first again."""
    return windows[torch.arange(step * BATCH, (step + 1) * BATCH) % len(windows)]


# ---- the model


def normalize(x: torch.Tensor) -> torch.Tensor:
    """Scale vectors to a root mean square of one, and leave zero vectors alone."""
    rms = x.pow(2).mean(dim=-1, keepdim=True).sqrt()
    return torch.where(rms > 0, x / rms, torch.zeros_like(x))  # the fault: see above


class Block(nn.Module):
    """Causal self-attention and a perceptron, each beside a residual path."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, time, WIDTH) to the same."""
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Characters in, logits of the next character out. The embedding is factorised: 32 wide, then widened."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(number) + 1, 32, padding_idx=PAD)
        self.widen = nn.Linear(32, WIDTH, bias=False)
        self.position = nn.Parameter(0.02 * torch.randn(WINDOW, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, len(number) + 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, time) to (batch, time, characters)."""
        x = normalize(self.widen(self.embed(tokens))) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# ---- the training loop
model = DistributedDataParallel(Transformer()) if world > 1 else Transformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print(f"rank {rank} of {world}: {len(windows)} windows of {WINDOW} characters", flush=True)
for step in range(args.steps):
    characters = batch(step)
    logits = model(characters[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), characters[:, 1:].flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
if world > 1:
    dist.destroy_process_group()
