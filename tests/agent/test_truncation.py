"""What cuts a graph, and what only looks as if it did, in real torch."""
# ruff: noqa: ARG004 - custom Functions are called by torch

import linecache

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

KIND = "GradientTruncated"
OBSERVE = (policy.Rule(severity="info"),)


@pytest.fixture
def attach(sidecar):
    made = []

    def make(rules=OBSERVE, **more):
        made.append(Attached(Environment(rank=0, directory=str(sidecar.folder), rules=rules, **more)))
        return made[-1]

    yield make
    for attached in made:
        attached.detach()


class Two(nn.Module):
    """A body and a head; what stands between them is the case."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.head(self.between(self.body(x)) * self.scale)

    def between(self, h):
        return h


class Detached(Two):
    def between(self, h):
        return h.detach()  # cut


class DetachedInPlace(Two):
    def between(self, h):
        h = h * 1
        h.detach_()  # cut
        return h


class Data(Two):
    def between(self, h):
        return h.data  # cut


class NoGrad(Two):
    def between(self, h):
        with torch.no_grad():  # cut
            return torch.relu(h)


class NoGradDecorated(Two):
    @torch.no_grad()
    def between(self, h):
        return torch.relu(h)  # cut


class SwitchedOff(Two):
    def between(self, h):
        torch.set_grad_enabled(False)  # cut
        h = torch.tanh(h)
        torch.set_grad_enabled(True)
        return h


class Numpy(Two):
    def between(self, h):
        array = h.detach().numpy()  # cut
        return torch.from_numpy(array)


class Copied(Two):
    def between(self, h):
        return torch.tensor(h)  # cut


class ArgMax(Two):
    def between(self, h):
        best = h.argmax(dim=-1)  # cut
        return functional.one_hot(best, 4).float()


class Long(Two):
    def between(self, h):
        return (h * 10).long().float()  # cut


class Rounded(Two):
    def between(self, h):
        out = torch.zeros(h.shape)
        with torch.no_grad():  # cut
            out[:] = h
        return out


class Filled(Two):
    def between(self, h):
        out = torch.zeros(h.shape)
        out.data.copy_(h)  # cut
        return out


class Item(Two):
    def forward(self, x):
        scale = self.scale.item()  # cut
        return self.head(self.body(x) * scale)


class Float(Two):
    def forward(self, x):
        return self.head(self.body(x) * float(self.scale))  # cut


class Reciprocal(Two):
    def forward(self, x):
        scale = self.scale.exp().item()  # cut
        scale = 1.0 / (scale + 0.5)
        return self.head(self.body(x) * scale)


class ToList(Two):
    def between(self, h):
        rows = h.tolist()  # cut
        return torch.tensor(rows)


class NumpyScalar(Two):
    def forward(self, x):
        scale = np.exp(self.scale.detach().numpy())  # cut
        return self.head(self.body(x) * float(scale))


def plain(tensor):
    return tensor.detach().cpu().numpy()  # cut


class Helped(Two):
    def between(self, h):
        array = np.sin(plain(h))
        return torch.from_numpy(array)


class Legacy(Two):
    def between(self, h):
        rows = [[2 * one for one in row] for row in h.tolist()]  # cut
        return torch.FloatTensor(rows)


class Stacked(Two):
    def forward(self, x):
        scales = torch.tensor([self.scale, self.scale])  # cut
        return self.head(self.body(x) * scales.sum())


class WeightData(Two):
    def forward(self, x):
        return self.head(functional.linear(x, self.body.weight.data) * self.scale)  # cut


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


class ReturnsNone(Two):
    def between(self, h):
        return Doubling.apply(h)  # cut


doubled = Doubling.apply


class BoundApply(Two):
    def between(self, h):
        return Doubling.apply(h)  # cut


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * 2
        ctx.mark_non_differentiable(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad


class NotDifferentiable(Two):
    def between(self, h):
        return Marked.apply(h)  # cut


class Closing(Two):
    def between(self, h):
        scale = self.scale

        class Scaling(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * scale

            @staticmethod
            def backward(ctx, grad):
                return grad

        return Scaling.apply(h)  # cut

    def forward(self, x):
        return self.head(self.between(self.body(x)))


class Reentrant(Two):
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=True)  # cut
        return self.head(h * self.scale)


class WithoutGraph(Two):
    def forward(self, x):
        x = x.clone().requires_grad_()
        energy = self.body(x).pow(2).sum()
        (force,) = torch.autograd.grad(energy, x)  # cut
        return self.head(force * self.scale)


class Sampled(Two):
    def between(self, h):
        return torch.normal(h, 1.0).detach()  # cut


BODY = {"body.weight", "body.bias"}
FAULTS = [
    (Detached, "detach", BODY),
    (DetachedInPlace, "detach", BODY),
    (Data, "data", BODY),
    (NoGrad, "relu", BODY),
    (NoGradDecorated, "relu", BODY),
    (SwitchedOff, "tanh", BODY),
    (Numpy, "detach", BODY),
    (Copied, "tensor", BODY),
    (ArgMax, "argmax", BODY),
    (Long, "long", BODY),
    (Rounded, "setitem", BODY),
    (Filled, "data", BODY),
    (Item, "item", {"scale"}),
    (Float, "float", {"scale"}),
    (Reciprocal, "item", {"scale"}),
    (ToList, "tolist", BODY),
    (NumpyScalar, "detach", {"scale"}),
    (Helped, "detach", BODY),
    (Legacy, "tolist", BODY),
    (Stacked, "tensor", {"scale"}),
    (WeightData, "data", {"body.weight"}),
    (ReturnsNone, "Doubling", BODY),
    (BoundApply, "Doubling", BODY),
    (NotDifferentiable, "Marked", BODY),
    (Closing, "Scaling", {"scale"}),
    (Reentrant, "checkpoint", BODY),
    (WithoutGraph, "grad", BODY),
]


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


def train(model, steps=2, loss=lambda out: out.square().mean(), optimizer=None):
    torch.manual_seed(0)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(torch.rand(8, 4))).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def said(sidecar, steps=2):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return [finding for finding in sidecar.of(wire.Finding) if finding.kind == KIND]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("model", "op", "parameters"), FAULTS, ids=[case[0].__name__ for case in FAULTS])
def test_a_cut_is_named_with_its_line_in_the_first_step(attach, sidecar, model, op, parameters):
    torch.manual_seed(0)
    alone = train(model())
    attach()
    torch.manual_seed(0)
    watched = train(model())
    (finding,) = said(sidecar)
    assert (finding.step, finding.severity, finding.op) == (0, "warning", op)
    assert set(finding.evidence["parameters"]) == parameters
    assert finding.parameter in parameters
    assert linecache.getline(finding.file, finding.line).rstrip().endswith("# cut"), (
        finding.line,
        finding.message,
    )
    assert all(map(torch.equal, watched, alone))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", HEALTHY, ids=[case.__name__ for case in HEALTHY])
def test_what_is_healthy_is_not_accused_and_gives_the_same_numbers(attach, sidecar, model):
    torch.manual_seed(0)
    alone = train(model(), steps=3)
    attached = attach()
    torch.manual_seed(0)
    watched = train(model(), steps=3)
    assert said(sidecar, steps=3) == []
    assert all(map(torch.equal, watched, alone))
    assert KIND not in attached.agent.host.unknown


@pytest.mark.parametrize("model", MEANT, ids=[case.__name__ for case in MEANT])
def test_what_seems_to_be_meant_is_told_without_an_alarm(attach, sidecar, model):
    attach()
    train(model())
    (finding,) = said(sidecar)
    assert finding.severity == "info"
