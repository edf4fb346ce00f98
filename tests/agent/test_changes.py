"""ParameterUntied and ParameterChangedOutsideStep in this process."""

import copy
import io

import pytest
import torch
from torch import nn
from watched import Tied, loss, said, sgd, train

UNTIED, OUTSIDE = "ParameterUntied", "ParameterChangedOutsideStep"


def values(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def load_in_place(model):
    model.load_state_dict(values(model))
    return copy.deepcopy(model)


def load_by_assignment(model):
    model.load_state_dict(values(model), assign=True)
    return model


def load_by_assignment_and_tie(model):
    load_by_assignment(model)
    model.head.weight = model.embed.weight
    return model


def own_loader(model):
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        place, _, last = name.rpartition(".")
        setattr(model.get_submodule(place), last, nn.Parameter(parameter.detach().clone()))
    return model


def more_tokens(model):
    new = nn.Embedding(24, 16)
    with torch.no_grad():
        new.weight[:20] = model.embed.weight
    model.embed = new
    return model


def cut_by_hand(model):
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    return model


def new_head(model):
    model.head = nn.Linear(16, 20, bias=False)
    return model


def adapted_head(model):
    model.head = nn.Sequential(model.head)
    return model


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(lambda model: model, [], id="tied"),
        pytest.param(load_in_place, [], id="loaded-in-place-and-copied"),
        pytest.param(load_by_assignment_and_tie, [], id="tied-again"),
        pytest.param(cut_by_hand, [], id="cut-by-hand"),
        pytest.param(new_head, [], id="new-head"),
        pytest.param(adapted_head, [], id="wrapped-head"),
        pytest.param(load_by_assignment, [(UNTIED, 0)], id="loaded-by-assignment"),
        pytest.param(own_loader, [(UNTIED, 0)], id="own-loader"),
        pytest.param(more_tokens, [(UNTIED, 0)], id="more-tokens"),
    ],
)
def test_ties(sidecar, change, found):
    def script():
        model = change(Tied())
        train(model, sgd(model), 4)

    assert said(sidecar, script) == found


def test_a_tie_that_is_lost_in_mid_run_is_said_at_the_next_step_with_its_line(sidecar):
    def script():
        model = Tied()
        optimizer = sgd(model)

        def behind(step):
            if step == 3:
                load_by_assignment(model)
                optimizer.param_groups[0]["params"][:] = list(model.parameters())

        train(model, optimizer, 6, behind)

    assert (UNTIED, 4) in said(sidecar, script)
    found = sidecar.findings(UNTIED, 4)[0]
    assert found.file == __file__
    assert found.parameter in ("embed.weight", "head.weight")


def put(model, source, how):
    for parameter, value in zip(model.parameters(), source, strict=True):
        if how == "copy":
            with torch.no_grad():
                parameter.copy_(value)
        elif how == "data.copy":
            parameter.data.copy_(value.data)
        else:
            parameter.data = value.data.clone()


@pytest.mark.parametrize("how", ["copy", "data.copy", "data"])
@pytest.mark.parametrize("undone", [True, False])
@pytest.mark.parametrize("at", ["evaluation", "save"])
def test_an_average_that_is_swapped_in(sidecar, how, undone, at):
    def script():
        model = Tied(tie=False)
        average = copy.deepcopy(model)

        def behind(step):
            with torch.no_grad():
                for slow, parameter in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(parameter, 0.1)
            if step == 9:
                kept = [parameter.detach().clone() for parameter in model.parameters()]
                put(model, average.parameters(), how)
                if at == "evaluation":
                    model.eval()
                    with torch.no_grad():
                        loss(model)
                    model.train()
                else:
                    torch.save(model.state_dict(), io.BytesIO())
                if undone:
                    put(model, kept, how)

        train(model, sgd(model, momentum=0.9), 14, behind)

    assert said(sidecar, script) == ([] if undone else [(OUTSIDE, 10)])


@pytest.mark.parametrize("resumed", [True, False])
def test_a_load_in_mid_run(sidecar, resumed):
    def script():
        model = Tied(tie=False)
        optimizer = sgd(model, momentum=0.9)
        state, moments = values(model), copy.deepcopy(optimizer.state_dict())

        def behind(step):
            if step == 9:
                model.load_state_dict(state)
                if resumed:
                    optimizer.load_state_dict(moments)

        train(model, optimizer, 14, behind)

    assert said(sidecar, script) == ([] if resumed else [(OUTSIDE, 10)])
    if not resumed:
        assert sidecar.findings(OUTSIDE, 10)[0].file == __file__


@pytest.mark.parametrize("counted", [True, False])
def test_an_edit_in_place(sidecar, counted):
    def script():
        model = Tied(tie=False)

        def behind(step):
            if step == 9:
                if counted:
                    with torch.no_grad():
                        model.body.weight.mul_(3.0)
                else:
                    model.body.weight.data.mul_(3.0)

        train(model, sgd(model), 14, behind)

    assert said(sidecar, script) == [(OUTSIDE, 10)]
    found = sidecar.findings(OUTSIDE, 10)[0]
    assert (found.parameter, found.evidence["changed"]) == ("body.weight", 1)


def clamped(model, _step):
    for parameter in model.parameters():
        parameter.data.clamp_(-0.05, 0.05)


def largest_norm(model, _step):
    model.body.weight.data = torch.renorm(model.body.weight.data, 2, 0, 0.6)


def half_way(model, step, every=7):
    if not hasattr(model, "slow"):
        model.slow = [parameter.detach().clone() for parameter in model.parameters()]
    if step % every == every - 1:
        with torch.no_grad():
            for slow, parameter in zip(model.slow, model.parameters(), strict=True):
                slow.lerp_(parameter, 0.5)
                parameter.copy_(slow)


def other_optimizer(model, step):
    if step % 7 == 6:
        optimizer = sgd(model.body, lr=1.0)
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


@pytest.mark.parametrize("act", [clamped, largest_norm, half_way, other_optimizer])
def test_what_comes_again_is_healthy(sidecar, act):
    def script():
        model = Tied(tie=False)
        train(model, sgd(model, momentum=0.9), 40, lambda step: act(model, step))

    assert said(sidecar, script) == []


def test_a_perturbation_within_the_step_is_healthy(sidecar):
    """As sharpness-aware minimisation does it: back again before the update, but for rounding."""

    def script():
        model = Tied(tie=False)
        optimizer = sgd(model)
        for _ in range(10):
            optimizer.zero_grad()
            loss(model).backward()
            with torch.no_grad():
                away = [0.05 * each.grad / each.grad.norm() for each in model.parameters()]
                torch._foreach_add_(list(model.parameters()), away)
            optimizer.zero_grad()
            loss(model).backward()
            with torch.no_grad():
                torch._foreach_sub_(list(model.parameters()), away)
            optimizer.step()

    assert said(sidecar, script) == []
