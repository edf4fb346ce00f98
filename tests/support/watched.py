"""A small training in this process, and what is said of it about parameters and the optimizer."""

import contextlib

import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import ALL, settings

KINDS = (
    "ParameterNotUpdated",
    "FrozenParameterChanged",
    "ParameterUntied",
    "ParameterChangedOutsideStep",
    "GradientAccumulatedTwice",
    "UpdateWrongSize",
)
OBSERVE = (policy.Rule(severity="info"),)


@contextlib.contextmanager
def attached(sidecar):
    """Attach an agent with these probes alone."""
    probes = settings.Settings({kind: ALL[kind].DEFAULTS for kind in KINDS})
    torch.manual_seed(0)
    made = Attached(Environment(rank=0, directory=str(sidecar.folder), rules=OBSERVE, probes=probes))
    try:
        yield made
        assert "WatchFailed" not in made.agent.unknown().values()
        assert not made.agent.off
    finally:
        made.detach()


def said(sidecar, script):
    """Return the kinds, steps and findings that are said of a script."""
    with attached(sidecar) as made:
        script()
        steps = made.agent.standing.step + 1
        dropped = made.agent.standing.link.dropped  # a busy machine reads the socket too late now and then
    sidecar.wait(lambda heard: len({taken.step for taken in heard.of(wire.StepTaken)}) >= steps - dropped)
    assert all(found.severity == "warning" for found in sidecar.of(wire.Finding))
    return [(found.kind, found.step) for found in sidecar.of(wire.Finding)]


class Model(nn.Module):
    """A body, a middle that may lie in a plain list, and a head."""

    def __init__(self, *, plain=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)
        middle = [nn.Linear(32, 32)]
        self.middle = middle if plain else nn.ModuleList(middle)

    def forward(self, x):
        return self.head(self.middle[0](self.body(x)))


class Tied(nn.Module):
    """A head and an embedding that share their weights."""

    def __init__(self, *, tie=True):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        if tie:
            self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(torch.tanh(self.body(self.embed(x))))


def loss(model, dtype=torch.float32):
    """Return the loss of a random batch."""
    if isinstance(model, Tied):
        x = torch.randint(0, 20, (32,))
        return nn.functional.cross_entropy(model(x), (x + 1) % 20)
    x, y = torch.randn(8, 16, dtype=dtype), torch.randint(0, 4, (8,))
    return nn.functional.cross_entropy(model(x), y)


def sgd(model, lr=0.05, **more):
    """Return an optimizer."""
    return torch.optim.SGD(model.parameters(), lr=lr, **more)


def train(model, optimizer, steps=10, behind=lambda _step: None, dtype=torch.float32):
    """Train, and do something behind each step."""
    for step in range(steps):
        optimizer.zero_grad()
        model.zero_grad()
        loss(model, dtype).backward()
        optimizer.step()
        behind(step)
