"""What cuts a graph, and what only looks as if it did, in real torch."""

import linecache

import pytest
import torch
from cuts import FAULTS
from lookalikes import HEALTHY, MEANT

from stepwarden import wire

KIND = "GradientTruncated"


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
