"""Updates within autocast regions, with real casts."""

import contextlib
import json

import pytest
import torch
from torch import nn

from stepwarden import policy
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import settings

ONLY = settings.read(
    json.dumps({kind: {"enabled": False} for kind in settings.DEFAULTS if kind != "StaleCast"})
)
OBSERVE = (policy.Rule(severity="info"),)


@pytest.fixture
def said():
    attached = Attached(Environment(rank=0, directory=None, rules=OBSERVE, probes=ONLY))
    found = []
    attached.agent.report = found.extend
    yield found
    off, unknown = attached.agent.off, attached.agent.host.unknown
    attached.detach()
    assert (off, unknown) == (False, {})


def region(**more):
    return torch.autocast("cpu", dtype=torch.bfloat16, **more)


def net(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer, behind=lambda: None):
    loss = model(torch.randn(3, 4)).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    behind()


def test_a_region_over_several_updates_uses_the_first_cast(said):
    model, optimizer = net()
    with region():
        for _ in range(3):
            train(model, optimizer)
    (finding,) = said
    assert (finding.kind, finding.severity, finding.step) == ("StaleCast", "warning", 1)
    assert (finding.module, finding.parameter, finding.file) == ("0", "0.weight", __file__)
    assert finding.evidence["stale"] == 4


def test_an_update_in_a_region_without_casts_within_is_stale_as_well(said):
    model, optimizer = net()
    with region():
        for _ in range(2):
            loss = model(torch.randn(3, 4)).float().square().mean()
            with torch.autocast("cpu", enabled=False):
                loss.backward()
                optimizer.step()
    assert [one.step for one in said] == [1]


def test_the_pass_may_go_backward_behind_the_region(said):
    model, optimizer = net()
    with region():
        train(model, optimizer)
        loss = model(torch.randn(3, 4)).float().square().mean()
    loss.backward()
    optimizer.step()
    assert [(one.step, one.parameter) for one in said] == [(1, "0.weight")]


def test_weights_that_belong_to_no_module(said):
    weight = nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with region():
        for _ in range(2):
            train(lambda x: x @ weight, optimizer)
    assert [(one.step, one.parameter, one.file) for one in said] == [(1, None, __file__)]


@pytest.mark.parametrize(
    ("outer", "inner", "behind", "dtype"),
    [
        pytest.param(contextlib.nullcontext, region, None, torch.float32, id="a-region-a-step"),
        pytest.param(region, contextlib.nullcontext, torch.clear_autocast_cache, torch.float32, id="cleared"),
        pytest.param(
            lambda: region(cache_enabled=False), contextlib.nullcontext, None, torch.float32, id="no-cache"
        ),
        pytest.param(region, contextlib.nullcontext, None, torch.bfloat16, id="low-precision-weights"),
        pytest.param(
            contextlib.nullcontext, contextlib.nullcontext, None, torch.float32, id="without-autocast"
        ),
    ],
)
def test_healthy_regions(said, outer, inner, behind, dtype):
    model, optimizer = net(dtype)
    with outer():
        for _ in range(4):
            with inner():
                train(lambda x: model(x.to(dtype)), optimizer, behind or (lambda: None))
    assert said == []


def test_two_losses_of_one_forward_pass_are_no_stale_casts(said):
    (first, fast), (second, slow) = net(), net()
    for _ in range(3):
        with region():
            x = torch.randn(3, 4)
            one, two = first(x).float().mean(), second(x).float().mean()
            for loss, optimizer in ((one, fast), (two, slow)):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    assert said == []


def test_nothing_enters_the_cache_and_all_is_taken_off():
    leave = torch.autocast.__exit__
    attached = Attached(Environment(rank=0, directory=None, rules=OBSERVE, probes=ONLY))
    assert torch.autocast.__exit__ is not leave
    attached.detach()
    assert torch.autocast.__exit__ is leave
