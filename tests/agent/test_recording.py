"""The recording of a step in other people's loops: what it must see, and what it must leave as it is."""

import pytest
import torch
from recorded import KIND, Pair, said, source, step
from torch import nn

from stepwarden.agent.trace import Recorder


def test_an_encoder_called_without_gradients_in_the_loop(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.rand(8, 4)
        with torch.no_grad():
            h = model.body(x)
        step(optimizer, model.head(h.tanh()).sum())
    (finding,) = said(sidecar, 2)
    assert (finding.step, finding.op, finding.parameter) == (0, "linear", "body.weight")
    assert source(finding) == "with torch.no_grad():"


def test_a_number_taken_out_before_the_first_forward_pass(attach, sidecar):
    attach()
    model = Pair()
    model.scale = nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        scale = model.scale.exp().item()
        step(optimizer, (model(torch.rand(8, 4)) * scale).sum())
    (finding,) = said(sidecar, 2)
    assert (finding.step, finding.op, finding.parameter) == (0, "item", "scale")
    assert source(finding) == "scale = model.scale.exp().item()"


@pytest.mark.parametrize(
    "anew",
    [
        lambda loss: torch.tensor(loss.item(), requires_grad=True),
        lambda loss: loss.detach().requires_grad_(),
        lambda loss: torch.autograd.Variable(loss.data, requires_grad=True),
        nn.Parameter,
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_loss_that_is_made_anew_reaches_no_parameter(attach, sidecar, anew):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        step(optimizer, anew(model(torch.rand(8, 4)).sum()))
    (finding,) = said(sidecar, 2)
    assert finding.step == 0
    assert finding.evidence["cut_parameters"] == 4


def test_a_cut_in_the_losses_code(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        out = model(torch.rand(8, 4))
        weight = torch.softmax(out.detach(), 0)
        step(optimizer, (weight * torch.rand(8, 1, requires_grad=True)).sum())
    (finding,) = said(sidecar, 2)
    assert (finding.step, finding.op) == (0, "detach")
    assert source(finding) == "weight = torch.softmax(out.detach(), 0)"


def test_a_cut_that_comes_later_is_named_when_it_comes(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        h = model.body(torch.rand(8, 4))
        h = h.detach() if number >= 4 else h
        step(optimizer, model.head(h).sum())
    (finding,) = said(sidecar, 8)
    assert finding.op == "detach"
    assert 4 <= finding.step <= 5


def test_experts_that_come_and_go_are_recorded_ever_more_rarely(attach, sidecar, monkeypatch):
    begun = []
    original = Recorder.__init__
    monkeypatch.setattr(
        Recorder, "__init__", lambda self, **more: (begun.append(1), original(self, **more))[1]
    )
    attach()
    model = Pair()
    expert = nn.Linear(4, 4)
    model.expert = expert
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(64):
        h = model.body(torch.rand(8, 4))
        step(optimizer, model.head(h if number % 2 else h + expert(h)).sum())
    assert said(sidecar, 64) == []
    assert len(begun) < 10


def test_two_optimizers_of_a_gan(attach, sidecar):
    def train():
        torch.manual_seed(0)
        generator, critic = Pair(), nn.Linear(1, 1)
        first, second = (torch.optim.Adam(net.parameters(), lr=0.1) for net in (critic, generator))
        for _ in range(4):
            fake = generator(torch.rand(8, 4))
            step(first, critic(fake.detach()).mean() - critic(torch.rand(8, 1)).mean())
            step(second, -critic(fake).mean())
        return [parameter.detach().clone() for parameter in (*generator.parameters(), *critic.parameters())]

    alone = train()
    attach()
    assert all(map(torch.equal, train(), alone))
    assert said(sidecar, 8) == []


def test_the_cut_of_a_second_optimizer(attach, sidecar):
    attach()
    generator, critic = Pair(), nn.Linear(1, 1)
    first, second = (torch.optim.Adam(net.parameters(), lr=0.1) for net in (critic, generator))
    for _ in range(2):
        noise = torch.rand(8, 4)
        step(first, critic(generator(noise).detach()).mean())
        hidden = generator.body(noise).tanh()
        step(second, -critic(generator.head(hidden.data)).mean())
    (finding,) = said(sidecar, 4)
    assert (finding.step, finding.op, finding.parameter) == (0, "data", "body.weight")


def test_closures_accumulation_and_a_scaler(attach, sidecar):
    def train():
        torch.manual_seed(0)
        model = Pair()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        x = torch.rand(8, 4)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for _ in range(2):
                scaler.scale(model(x).sum()).backward()
            scaler.step(other)
            scaler.update()
            other.zero_grad()
        return [parameter.detach().clone() for parameter in model.parameters()]

    alone = train()
    attach()
    assert all(map(torch.equal, train(), alone))
    assert said(sidecar, 3) == []


def test_parts_that_are_trained_in_turn_by_one_optimizer(attach, sidecar):
    attach()
    model = Pair()
    model.critic = nn.Linear(1, 1)
    model.front = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        x = torch.rand(8, 4)
        if number % 2 == 0:
            step(optimizer, model(model.front(x)).sum())
        else:
            with torch.no_grad():
                goal = model(x)
            step(optimizer, model.critic(goal).square().sum())
    assert said(sidecar, 8) == []


def test_gradients_taken_by_hand_are_not_judged(attach, sidecar):
    attached = attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.head.parameters())
    h = model.body(torch.rand(8, 4)).detach()
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(model.head(h).sum(), parameters), strict=True
    ):
        parameter.grad = gradient
    optimizer.step()
    assert said(sidecar, 1) == []
    assert attached.agent.unknown()[KIND] == "NotRecorded"
