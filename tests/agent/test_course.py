"""ExplodingGradient and LossSpike in this process: what a step's numbers are taken from."""

import pytest
import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import ALL, settings

KINDS = ("ExplodingGradient", "LossSpike")
OBSERVE = (policy.Rule(severity="info"),)


def reached(heard, step):
    """Whether a step was told of; one message may find no room, the state is said again and again."""
    return any(said.step >= step for said in (*heard.of(wire.StepTaken), *heard.of(wire.RankState)))


@pytest.fixture
def attached(sidecar):
    probes = settings.Settings({kind: ALL[kind].DEFAULTS for kind in KINDS})
    made = Attached(Environment(rank=0, directory=str(sidecar.folder), rules=OBSERVE, probes=probes))
    yield made
    made.detach()


def said(sidecar, attached, steps):
    sidecar.wait(lambda heard: reached(heard, steps - 1))
    assert not set(KINDS) & set(attached.agent.host.unknown)
    return [(found.kind, found.severity, found.step, found.parameter) for found in sidecar.of(wire.Finding)]


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 4, bias=False)})

    def forward(self, x):
        return self.base(x) + self.lora_B["default"](self.lora_A["default"](x))


def test_the_adapters_matrix_past_the_limit_is_named(sidecar, attached):
    """As huggingface/peft names them; one massive activation, and the loss is finite."""
    model = nn.Sequential(Adapted(), nn.Linear(4, 1).requires_grad_(requires_grad=False))
    nn.init.zeros_(model[0].lora_B["default"].weight)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1e-9)
    for step in range(6):
        x = torch.ones(1, 4)
        x[0, 0] = 1e6 if step == 4 else 1.0
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    (found,) = [each for each in said(sidecar, attached, 6) if each[0] == "ExplodingGradient"]
    assert found == ("ExplodingGradient", "critical", 4, "0.lora_B.default.weight")


@pytest.mark.parametrize("many", [1, 24])
def test_more_micro_batches_are_no_rise(sidecar, attached, many):
    """The loss is the mean over backward passes, and gradients alone rise by less than their factor."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step in range(30):
        for _ in range(many if step > 20 else 1):
            (model(torch.ones(2, 4)) - 3.0).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert said(sidecar, attached, 30) == []


def test_a_closure_that_is_called_a_varying_number_of_times_is_silent(sidecar, attached):
    parameter = nn.Parameter(torch.full((3,), 4.0))
    optimizer = torch.optim.LBFGS([parameter], max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (parameter**4).sum()
        loss.backward()
        return loss

    for _ in range(20):
        optimizer.step(closure)
    assert said(sidecar, attached, 20) == []


def test_a_learning_rate_far_too_high_is_said_by_both_kinds(sidecar, attached):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(20):
        optimizer.param_groups[0]["lr"] = 5.0 if step == 14 else 1e-3
        optimizer.zero_grad()
        x = torch.randn(32, 4)
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
    found = said(sidecar, attached, 20)
    assert {(kind, step) for kind, severity, step, _ in found if severity == "warning"} >= {
        ("ExplodingGradient", 15),
        ("LossSpike", 15),
    }
