"""Loops that people write themselves."""

import pytest
import torch
from torch import nn

STEPS, BAD = 8, 5
NAN = float("nan")


def batches(bad):
    """Make the batches of a loop; the bad one holds NaN."""
    torch.manual_seed(0)
    for step in range(STEPS):
        x = torch.randn(8, 6)
        yield x * NAN if step == bad else x


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))


def size(*models):
    return sum(parameter.detach().double().abs().sum().item() for m in models for parameter in m.parameters())


def two_optimizers(bad):
    """Two nets that play against each other, each with an optimizer; gradients of one reach the other."""
    generator, critic = net(), nn.Linear(6, 1)
    nn.init.constant_(critic.weight, 0.1)
    one, two = (torch.optim.Adam(model.parameters(), lr=1e-2) for model in (generator, critic))
    numbers = []
    for x in batches(bad):
        two.zero_grad()
        loss = critic(generator(x).detach()).mean() - critic(x).mean()
        loss.backward()
        two.step()
        one.zero_grad()
        (-critic(generator(x)).mean()).backward()
        one.step()
        numbers.append(size(generator, critic))
    return numbers


def closures(bad):
    """LBFGS, which asks for loss and gradients as often as it likes."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    numbers = []
    for x in batches(bad):

        def closure(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        numbers.append(size(model))
        if bad is not None and len(numbers) == bad + 1:  # its memory of the curvature is poisoned
            optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    return numbers


def compiled_step(bad):
    """The optimizer's step is compiled; the model isn't."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = torch.compile(optimizer.step, backend="aot_eager")
    numbers = []
    for x in batches(bad):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        step()
        numbers.append(size(model))
    return numbers


def several_backwards(bad):
    """Two losses, each with a backward pass of its own, over a graph that is kept; and accumulation."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    numbers = []
    for x in batches(bad):
        optimizer.zero_grad()
        for part in x.chunk(2):
            y = model(part)
            (y - part).square().mean().backward(retain_graph=True)
            (1e-3 * y.abs().mean()).backward()
        optimizer.step()
        numbers.append(size(model))
    return numbers


def sets_to_zero(bad):
    """Gradients are kept and zeroed; a schedule, clipping, and an evaluation now and then."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=STEPS + 1)
    numbers = []
    for x in batches(bad):
        model.train()
        optimizer.zero_grad(set_to_none=False)
        (model(x) - x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 6))
        numbers.append(size(model))
    return numbers


class OneGraph(torch.optim.Optimizer):
    """A user's own optimizer, whose step can be compiled as a whole."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-2})

    def step(self, closure=None):
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.copy_(torch.add(parameter.data, parameter.grad, alpha=-group["lr"]))


def whole_graph(bad):
    """A step that must stay one graph: no hook can run within it."""
    model = net()
    optimizer = OneGraph(model.parameters())
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    numbers = []
    for x in batches(bad):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        step()
        numbers.append(size(model))
    return numbers


LOOPS = [two_optimizers, closures, several_backwards, sets_to_zero, compiled_step]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_healthy_loop_is_left_in_peace(watching, loop):
    watching.healthy(loop, STEPS * (2 if loop is two_optimizers else 1))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_bad_batch_is_found_before_its_update(watching, loop):
    watching.poisoned(loop, BAD)


def test_a_step_that_must_stay_one_graph_stays_so(watching):
    watching.healthy(whole_graph, 0)


def test_what_was_made_before_the_agent_came_is_watched(watching):
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loop(bad):
        for x in batches(bad):
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            optimizer.step()
        return [size(model), size(model)]

    loop(None)
    watching.poisoned(loop, BAD)
    assert watching.steps(STEPS) == list(range(STEPS))


def test_an_evaluation_is_left_alone(watching):
    """Also one that takes gradients, as an attack does: no optimizer, no step, no finding."""

    def evaluate(bad):
        model, numbers = net().eval(), []
        for x in batches(bad):
            with torch.inference_mode():
                numbers.append(model(x).sum().item())
            x.requires_grad_()
            model(x).square().sum().backward()
            numbers.append(x.grad.sum().item())
        return numbers

    alone = evaluate(None)
    watching.attach(())
    assert evaluate(None) == alone
    evaluate(BAD)
    assert watching.alarms() == []
    assert watching.steps(0) == []
