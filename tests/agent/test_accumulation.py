"""GradientAccumulatedTwice in this process: what clears gradients, and what doesn't."""

import copy
import io

import pytest
import torch
from torch import nn
from watched import Model, loss, said, sgd, train

KIND = "GradientAccumulatedTwice"


def by_hand(parameters, clear):
    for parameter in parameters:
        if parameter.grad is not None:
            clear(parameter)


CLEARING = {
    "none": lambda _model, optimizer: optimizer.zero_grad(),
    "zeros": lambda _model, optimizer: optimizer.zero_grad(set_to_none=False),
    "model": lambda model, _optimizer: model.zero_grad(),
    "by-hand": lambda model, _optimizer: by_hand(model.parameters(), lambda p: setattr(p, "grad", None)),
    "data": lambda model, _optimizer: by_hand(model.parameters(), lambda p: p.grad.data.zero_()),
    "detached": lambda model, _optimizer: by_hand(model.parameters(), lambda p: p.grad.detach_().zero_()),
}


@pytest.mark.parametrize("micro", [1, 3])
@pytest.mark.parametrize("clear", CLEARING.values(), ids=CLEARING)
def test_what_clears_gradients_is_healthy(sidecar, clear, micro):
    def script():
        model = Model()
        optimizer = sgd(model)
        for _ in range(5):
            clear(model, optimizer)
            for _ in range(micro):
                loss(model).backward()
            optimizer.step()

    assert said(sidecar, script) == []


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.AdamW])
def test_gradients_that_are_never_cleared_are_found_in_the_second_step(sidecar, cls, compiled):
    def script():
        model = Model()
        optimizer = cls(model.parameters(), lr=0.01)
        called = torch.compile(model, backend="aot_eager") if compiled else model
        for _ in range(4):
            loss(called).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    assert said(sidecar, script) == [(KIND, 1)]


@pytest.mark.parametrize("clear", [CLEARING["none"], CLEARING["zeros"], CLEARING["data"]])
def test_the_generators_backward_pass_reaches_the_discriminator(sidecar, clear):
    def script():
        generator, discriminator = nn.Linear(16, 16), Model()
        one, two = sgd(generator), sgd(discriminator)
        for _ in range(6):
            z = torch.randn(8, 16)
            clear(discriminator, two)
            discriminator(generator(z).detach()).mean().backward()
            loss(discriminator).backward()
            two.step()
            clear(generator, one)
            (-discriminator(generator(z)).mean()).backward()
            one.step()

    assert said(sidecar, script) == []


@pytest.mark.parametrize("clear", [True, False])
def test_closures(sidecar, clear):
    def script():
        model, x = Model(), torch.randn(8, 16)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3)

        def closure():
            if clear:
                optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(closure)

    assert said(sidecar, script) == ([] if clear else [(KIND, 1)])


@pytest.mark.parametrize(
    ("between", "found"),
    [
        pytest.param(lambda _optimizer, value: value, [(KIND, 0)], id="twice"),
        pytest.param(lambda optimizer, value: optimizer.zero_grad() or value, [], id="cleared-between"),
        pytest.param(lambda _optimizer, value: value * 2, [], id="another-loss"),
    ],
)
def test_a_loss_that_is_counted_twice(sidecar, between, found):
    def script():
        model = Model()
        optimizer = sgd(model)
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(model)
            value.backward(retain_graph=True)
            between(optimizer, value).backward()
            optimizer.step()

    assert said(sidecar, script) == found


def test_sparse_gradients_skipped_steps_and_updates_within_backward_are_healthy(sidecar):
    def script():
        embedding = nn.Embedding(20, 8, sparse=True)
        sparse = torch.optim.SparseAdam(embedding.parameters())
        model = Model()
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(6):
            sparse.zero_grad()
            embedding(torch.arange(4)).sum().backward()
            sparse.step()
            optimizer.zero_grad()
            scaler.scale(loss(model)).backward()
            if step == 2:
                model.head.weight.grad[0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        within = Model()
        each = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in within.parameters()}

        def update(parameter):
            each[parameter].step()
            each[parameter].zero_grad()

        for parameter in within.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        for _ in range(4):
            loss(within).backward()

    assert said(sidecar, script) == []


def test_copies_and_pickles_of_a_model_have_no_hooks(sidecar):
    def script():
        model = Model()
        train(model, sgd(model), 3)
        twin = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        for other in (twin, again):
            hooks = [each._post_accumulate_grad_hooks for each in other.parameters()]  # noqa: SLF001 - torch's
            assert not any(hooks)

    assert said(sidecar, script) == []
