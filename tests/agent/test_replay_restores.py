"""A replay puts all back, to the bit: modules, gradients, random states, switches."""

import copy
import random

import numpy as np
import torch
from faulty import Around, Moving, Root, told, train
from torch import nn

from stepwarden import policy

SKIP = (policy.Rule(action="Skip"),)


def state(model):
    return (
        [value.clone() for value in model.state_dict().values()],
        [parameter.grad for parameter in model.parameters()],
        [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()],
        (model.count, list(model.seen), model.last, list(vars(model)), model.training),
        (torch.get_rng_state(), random.getstate(), np.random.get_state()[1:]),  # noqa: NPY002 - the global one
        [buffer._version for buffer in model.buffers()],  # noqa: SLF001 - the only count of changes
        (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), nn.Module.__call__),
        torch.utils.checkpoint.CheckpointFunction,
    )


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0)) and one.dtype == other.dtype
    if isinstance(one, np.ndarray):
        return bool((one == other).all())
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or one == other


def test_all_is_as_before_to_the_bit(attach, sidecar):
    attached = attach()
    model = Moving()
    before = []
    explain = attached.agent.crew.explain

    def watched(*args):
        before.append(state(model))
        found = explain(*args)
        before.append(state(model))
        return found

    attached.agent.crew.explain = watched
    train(model, torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module) == ("div", "part")
    assert len(before) >= 2
    for one, other in zip(before[0], before[1], strict=True):
        assert same(one, other)
    for one, other in zip(before[0][1], before[1][1], strict=True):
        assert one is other


def test_a_graph_that_still_waits_for_its_backward_pass_is_not_spoiled(attach, sidecar):
    attach(SKIP)
    model = Moving()
    waiting = (model.codes * nn.Parameter(torch.ones(3))).sum()
    model.codes = model.codes.clone()
    loss = model(torch.randn(8, 4)).sum()
    later = (model.codes * nn.Parameter(torch.ones(3))).sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert told(sidecar)["NonFiniteGradient"].op == "div"
    (waiting + later).backward()


def test_training_goes_on_as_without_a_replay(attach, sidecar):
    def course(*, skipping):
        torch.manual_seed(0)
        model = Around(Root())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for index in range(4):
            model.part = Root() if index == 2 else nn.Identity()
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if skipping and index == 2:
                optimizer.zero_grad()
            optimizer.step()
        return copy.deepcopy(model.state_dict()), torch.rand(3)

    alone = course(skipping=True)
    attach(SKIP)
    watched = course(skipping=False)
    assert told(sidecar, 4)["NonFiniteGradient"].op == "sqrt"
    assert torch.equal(alone[1], watched[1])
    assert all(torch.equal(value, watched[0][name]) for name, value in alone[0].items())
