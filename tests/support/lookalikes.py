"""Models that look as if their graph was cut, and are healthy or meant so."""

import torch
from cuts import Two
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Plain(Two):
    """Nothing special."""


class StraightThrough(Two):
    def between(self, h):
        return h + (h.round() - h).detach()


class StopGradient(Two):
    def forward(self, x):
        h = self.body(x)
        return self.head(h * self.scale) + h.detach().mean()


class UnusedHead(Two):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(4, 2)

    def forward(self, x):
        h = self.body(x)
        self.pooled = self.other(h).tanh()
        return self.head(h * self.scale)


class LoggedHead(UnusedHead):
    def forward(self, x):
        h = self.body(x)
        self.accuracy = self.other(h.detach()).argmax(-1).float().mean().item()
        self.logged = {"entropy": self.other(h).softmax(-1).log().mean().item()}
        return self.head(h * self.scale) * 0.5


def noted(tensor, where):
    number = tensor.softmax(-1).log().mean().item()
    where.append(number * 2)
    return tensor


class LoggedByHelper(UnusedHead):
    def forward(self, x):
        h = self.body(x)
        self.seen = noted(self.other(h), [])
        return self.head(h * self.scale) * 0.5


class LoggedWeight(UnusedHead):
    def forward(self, x):
        out = self.head(self.body(x) * self.scale)
        norm = self.other.weight.norm().item()
        self.seen = f"{norm:.3f}"
        return out * 0.5


class Target(Two):
    """As BYOL, where the optimizer was given the target as well."""

    def __init__(self):
        super().__init__()
        self.target = nn.Linear(4, 4)
        self.target.load_state_dict(self.body.state_dict())

    def forward(self, x):
        with torch.no_grad():
            goal = self.target(x)
        return self.head((self.body(x) - goal) * self.scale)


class MovedInForward(Two):
    """As MoCo: the key encoder follows at the beginning of each forward pass."""

    def __init__(self):
        super().__init__()
        self.key = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.key.parameters(), self.body.parameters(), strict=True):
                slow.data = slow.data * 0.9 + fast.data * 0.1
            goal = self.key(x)
        return self.head((self.body(x) - goal) * self.scale)


class EmaCodebook(Two):
    """As the VQ-VAE whose codebook is moved by averages, and never by the optimizer."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(8, 4)

    def between(self, h):
        nearest = torch.cdist(h, self.codes.weight).argmin(dim=1)
        hits = functional.one_hot(nearest, 8).type(h.dtype)
        with torch.no_grad():
            self.codes.weight.mul_(0.9).add_(hits.T @ h, alpha=0.1)
        quantised = self.codes(nearest)
        return h + (quantised - h).detach()


class ShapeOnly(Two):
    def __init__(self):
        super().__init__()
        self.template = nn.Parameter(torch.rand(4))

    def between(self, h):
        noise = torch.zeros_like(self.template).expand_as(h)
        return h + noise + torch.ones(self.template.shape)


class Dropped(Two):
    """Layer drop: a layer isn't run in this step."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def between(self, h):
        for index, layer in enumerate(self.layers):
            if index != 1:
                h = h + layer(h)
        return h


class Experts(Two):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def between(self, h):
        weights = self.router(h).softmax(-1)
        chosen = weights.argmax(-1)
        out = torch.zeros_like(h)
        for index, expert in enumerate(self.experts[:2]):
            rows = chosen == index
            out[rows] = expert(h[rows]) * weights[rows, index, None]
        return h + out


class ReentrantWithGradient(Two):
    def forward(self, x):
        h = self.body(x)
        return self.head(checkpoint(torch.tanh, h, use_reentrant=True) * self.scale)


class NotReentrant(Two):
    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False) * self.scale)


class Penalised(Two):
    """A gradient penalty."""

    def forward(self, x):
        x = x.clone().requires_grad_()
        out = self.head(self.body(x).tanh() * self.scale)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out + slope.norm()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad, None


class CustomFunction(Two):
    def between(self, h):
        return Square.apply(h, 2)


class ClampedInPlace(Two):
    def forward(self, x):
        with torch.no_grad():
            self.scale.clamp_(0.1, 5.0)
        return self.head(self.body(x) * self.scale)


class LogitScaleLogged(Two):
    def forward(self, x):
        self.seen = self.scale.item()
        return self.head(self.body(x) * self.scale)


class Frozen(Two):
    def __init__(self):
        super().__init__()
        self.body.requires_grad_(False)  # noqa: FBT003 - as users write it

    def between(self, h):
        with torch.no_grad():
            return torch.tanh(h)


class Normalised(Two):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def between(self, h):
        h = self.norm(h)[None]
        return self.dropout(self.attention(h, h, h)[0][0])


class FrozenForNow(Two):
    """As wav2vec: the features are not trained in the first updates."""

    updates = 0

    def between(self, h):
        with torch.set_grad_enabled(self.updates > 10):
            return torch.tanh(h)


class FrozenByFlag(Two):
    freeze = True

    def between(self, h):
        if self.freeze:
            h = h.detach()
        else:
            self.trained = True
        return h


class Teacher(Two):
    """A teacher that was left among the optimizer's parameters."""

    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(4, 4)

    def train(self, mode=True):  # noqa: FBT002 - as torch has it
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x):
        self.train()
        with torch.no_grad():
            goal = self.teacher(x)
        return self.head((self.body(x) - goal) * self.scale)


MEANT = [FrozenForNow, FrozenByFlag, Teacher]
HEALTHY = [
    Plain, StraightThrough, StopGradient, UnusedHead, LoggedHead, LoggedWeight, LoggedByHelper, Target,
    MovedInForward, EmaCodebook, ShapeOnly, Dropped, Experts, ReentrantWithGradient, NotReentrant, Penalised,
    CustomFunction, ClampedInPlace, LogitScaleLogged, Frozen, Normalised,
]  # fmt: skip
