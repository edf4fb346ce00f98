"""Models with a fault, the line of which ends with a mark."""

import math
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stepwarden import wire

LINES = Path(__file__).read_text().splitlines()


def line(mark):
    """Return the number of the line of this file that ends with a mark."""
    (found,) = [number for number, text in enumerate(LINES, 1) if text.endswith(f"# {mark}")]
    return found


def train(model, *inputs, loss=lambda output: output.sum(), optimizer=None):
    """Make one step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss(model(*inputs)).backward()
    optimizer.step()
    return optimizer


class Around(nn.Module):
    """A part, between a layer with statistics, one with random numbers, and a head."""

    def __init__(self, part, width=4):
        super().__init__()
        self.stem = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.25)
        self.part = part
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.part(self.drop(self.norm(self.stem(x)))))


class OwnNorm(nn.Module):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        spread = (x * 0).sum(-1, keepdim=True)
        return centred / spread  # zero spread


class Root(nn.Module):
    def forward(self, x):
        return torch.where(x > 10, (x * 0).sqrt(), x)  # taken nowhere


class Exponent(nn.Module):
    def forward(self, x):
        y = x.half() + 20
        return torch.exp(y).float()  # overflows


class MaskedRows(nn.Module):
    def forward(self, x):
        scores = x.masked_fill(torch.ones_like(x, dtype=torch.bool), -math.inf)
        return torch.softmax(scores, -1)  # masked as a whole


class Checkpointed(nn.Module):
    def __init__(self, inner, *, reentrant):
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (ctx.saved_tensors[0] * 0)


class OwnBackward(nn.Module):
    def forward(self, x):
        return Own.apply(x)  # own backward


class Masking(nn.Module):
    """A NaN that is masked away, before one that is not."""

    def forward(self, x):
        harmless = torch.where(x < math.inf, x, torch.log(-x.abs()))
        return harmless + torch.log(x * 0).clamp(min=-1)  # of zero


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.proj(x).pow(2).sum(-1).sqrt()  # of a zero row


class Moving(Around):
    """A model that changes itself in each forward pass, in all ways."""

    def __init__(self):
        super().__init__(OwnNorm())
        self.register_buffer("codes", torch.zeros(3))
        self.count, self.seen = 0, []
        self.last = None

    def forward(self, x):
        self.codes += torch.rand(3)
        self.count += random.randrange(10) + np.random.randint(10)  # noqa: NPY002, S311 - the global ones are meant
        self.seen.append(self.count)
        self.last = x.mean()
        return super().forward(x + self.codes.sum())


PARTS = {
    "div": (OwnNorm, "div", "zero spread", True),
    "sqrt": (Root, "sqrt", "taken nowhere", False),
    "exp": (Exponent, "exp", "overflows", True),
    "softmax": (MaskedRows, "softmax", "masked as a whole", True),
    "function": (OwnBackward, "Own", "own backward", False),
    "masked": (Masking, "log", "of zero", True),
}


def told(sidecar, steps=1):
    """Return the findings about what is not finite, by kind."""
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return {said.kind: said for said in sidecar.of(wire.Finding) if said.kind.startswith("NonFinite")}
