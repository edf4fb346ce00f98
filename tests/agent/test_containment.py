"""Containment: whether a bad update is known before it is applied."""

import pytest
import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

SKIP = (policy.Rule(action="Skip"),)


@pytest.fixture
def attach(sidecar):
    made = []

    def make(containment):
        made.append(
            Attached(Environment(rank=0, directory=str(sidecar.folder), rules=SKIP, containment=containment))
        )

    yield make
    for attached in made:
        attached.detach()


def train(*factors):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for factor in factors:
        optimizer.zero_grad()
        model(torch.full((1, 2), factor)).sum().backward()
        optimizer.step()
    return model


def found(sidecar, steps):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return sidecar.findings("NonFiniteGradient", 1)


def test_strict_containment_knows_before_the_update(attach, sidecar):
    attach("strict")
    model = train(1.0, float("nan"))
    assert model.weight.isfinite().all()
    assert found(sidecar, 2)[0].evidence["late"] is False


def test_deferred_containment_finds_one_step_late_and_says_so(attach, sidecar):
    attach("deferred")
    model = train(1.0, float("nan"), 1.0)
    assert model.weight.isnan().all()
    late = found(sidecar, 2)[0]
    assert "found one step late, its update was applied" in late.message
    assert late.evidence["late"] is True
