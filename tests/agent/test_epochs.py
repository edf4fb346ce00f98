"""Passes over a shuffling DistributedSampler, whose epoch a program must set."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import settings


@pytest.fixture
def attach(sidecar):
    made = []

    def make():
        only = settings.Settings({"DataRepeated": {}})
        rules = (policy.Rule(severity="info"),)
        made.append(Attached(Environment(rank=0, directory=str(sidecar.folder), rules=rules, probes=only)))
        return made[-1]

    yield make
    for attached in made:
        attached.detach()


def train(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("sets", "shuffle", "alarms"), [(False, True, 1), (True, True, 0), (False, False, 0)]
)
def test_a_sampler_whose_epoch_is_never_set_repeats_its_order(attach, sidecar, sets, shuffle, alarms):
    attach()
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(torch.randn(24, 8), num_replicas=2, rank=0, shuffle=shuffle)
    held_out = DistributedSampler(torch.randn(24, 8), num_replicas=2, rank=0)
    loader, validation = (
        DataLoader(sampler.dataset, 4, sampler=sampler),
        DataLoader(sampler.dataset, 4, sampler=held_out),
    )
    for epoch in range(3):
        if sets:
            sampler.set_epoch(epoch)
        for x in loader:
            train(model, optimizer, x)
        assert len(list(validation)) == 3
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= 9)
    found = [(each.kind, each.severity, each.step) for each in sidecar.of(wire.Finding)]
    assert found == [("DataRepeated", "warning", 3)] * alarms


def test_detaching_takes_all_hooks_off(attach):
    before = DistributedSampler.__iter__
    attached = attach()
    assert DistributedSampler.__iter__ is not before
    attached.detach()
    assert DistributedSampler.__iter__ is before
