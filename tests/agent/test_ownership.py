"""ParameterNotUpdated, UpdateWrongSize and FrozenParameterChanged in this process."""

import copy

import pytest
import torch
from torch import nn
from watched import Model, loss, said, sgd, train

NOT_UPDATED, FROZEN, SIZE = "ParameterNotUpdated", "FrozenParameterChanged", "UpdateWrongSize"
BOTH = {NOT_UPDATED, SIZE}


def head_replaced(model):
    optimizer = sgd(model)
    model.head = nn.Linear(32, 4)
    return model, optimizer


def head_replaced_and_kept(model):
    optimizer = sgd(model)
    model.old = [model.head]
    model.head = nn.Linear(32, 4)
    return model, optimizer


def loaded_by_assignment(model):
    optimizer = sgd(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    return model, optimizer


def another_copy(model):
    return copy.deepcopy(model), sgd(model)


def part_added(model):
    optimizer = sgd(model)
    model.body.add_module("late", nn.Linear(32, 32))
    return model, optimizer


def plain_list(_model):
    model = Model(plain=True)
    return model, sgd(model)


@pytest.mark.parametrize(
    "make",
    [head_replaced, head_replaced_and_kept, loaded_by_assignment, another_copy, part_added, plain_list],
)
def test_what_the_optimizer_lacks_by_mistake_is_said_in_the_first_step(sidecar, make):
    assert said(sidecar, lambda: train(*make(Model()), 4)) == [(NOT_UPDATED, 0)]


def test_a_head_that_is_replaced_in_mid_run_is_said_in_the_next_step(sidecar):
    def script():
        model = Model()

        def behind(step):
            if step == 4:
                model.head = nn.Linear(32, 4)

        train(model, sgd(model), 8, behind)

    assert said(sidecar, script) == [(NOT_UPDATED, 5)]
    assert sidecar.findings(NOT_UPDATED, 5)[0].parameter == "head.weight"


@pytest.mark.parametrize("added", [True, False])
def test_what_is_unfrozen_has_to_be_given_to_the_optimizer(sidecar, added):
    def script():
        model = Model()
        model.body.requires_grad_(requires_grad=False)
        optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.05)

        def behind(step):
            if step == 4:
                model.body.requires_grad_(requires_grad=True)
                if added:
                    optimizer.add_param_group({"params": list(model.body.parameters())})

        train(model, optimizer, 8, behind)

    assert said(sidecar, script) == ([] if added else [(NOT_UPDATED, 5)])


def head_alone(model):
    return model, sgd(model.head)


def compiled_later(model):
    optimizer = sgd(model)
    return torch.compile(model, backend="aot_eager"), optimizer


def wrapped_later(model):
    optimizer = sgd(model)
    return nn.Sequential(model), optimizer


@pytest.mark.parametrize("make", [head_alone, compiled_later, wrapped_later])
def test_what_is_left_out_on_purpose_or_only_wrapped_is_healthy(sidecar, make):
    assert said(sidecar, lambda: train(*make(Model()), 4)) == []


def test_two_optimizers_and_a_network_that_only_judges_are_healthy(sidecar):
    def script():
        generator, discriminator, judge = nn.Linear(16, 16), Model(), Model()
        one, two = sgd(generator), sgd(discriminator)
        for _ in range(4):
            two.zero_grad()
            loss(discriminator).backward()
            two.step()
            one.zero_grad()
            fake = generator(torch.randn(8, 16))
            (judge(fake).mean() - discriminator(fake).mean()).backward()
            one.step()

    assert said(sidecar, script) == []


def test_master_weights_are_no_strangers(sidecar):
    def script():
        model = Model().bfloat16()
        masters = [nn.Parameter(each.detach().float()) for each in model.parameters()]
        optimizer = torch.optim.AdamW(masters, lr=1e-3)
        for _ in range(8):
            loss(model, torch.bfloat16).backward()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                master.grad = parameter.grad.float()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for master, parameter in zip(masters, model.parameters(), strict=True):
                    parameter.copy_(master)
                    parameter.grad = None

    assert said(sidecar, script) == []


@pytest.mark.parametrize(
    ("dtype", "make", "found"),
    [
        pytest.param(torch.float32, lambda p: torch.optim.SGD(p, lr=0.05), set(), id="healthy"),
        pytest.param(torch.bfloat16, lambda p: torch.optim.AdamW(p, lr=1e-3), set(), id="healthy-bf16"),
        pytest.param(torch.bfloat16, lambda p: torch.optim.SGD(p, lr=1e-6), BOTH, id="rounding"),
        pytest.param(torch.float32, lambda p: torch.optim.SGD(p, lr=1e-9), BOTH, id="far-too-small"),
        pytest.param(torch.float32, lambda p: torch.optim.AdamW(p, lr=5.0), {SIZE}, id="far-too-large"),
    ],
)
def test_sizes_of_updates(sidecar, dtype, make, found):
    def script():
        model = Model().to(dtype)
        train(model, make(model.parameters()), 42, dtype=dtype)

    assert {kind for kind, _ in said(sidecar, script)} == found


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        pytest.param(lambda step: min(step / 5, 1.0), [], id="warm-up"),
        pytest.param(lambda step: float(step < 3), [(NOT_UPDATED, 12)], id="past-the-end"),
    ],
)
def test_a_learning_rate_of_zero(sidecar, schedule, found):
    def script():
        model = Model()
        optimizer = sgd(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        train(model, optimizer, 20, lambda _step: scheduler.step())

    assert said(sidecar, script) == found


@pytest.mark.parametrize(
    ("decay", "momentum", "none", "found"),
    [
        pytest.param(0.1, 0.0, False, [(FROZEN, 5)], id="weight-decay"),
        pytest.param(0.0, 0.9, False, [(FROZEN, 5)], id="momentum"),
        pytest.param(0.0, 0.0, False, [], id="neither"),
        pytest.param(0.1, 0.9, True, [], id="no-gradient-left"),
    ],
)
def test_what_is_frozen_in_mid_run(sidecar, decay, momentum, none, found):
    def script():
        model = Model()
        optimizer = sgd(model, momentum=momentum, weight_decay=decay)
        for step in range(10):
            if step == 5:
                model.body.requires_grad_(requires_grad=False)
            optimizer.zero_grad(set_to_none=none)
            loss(model).backward()
            optimizer.step()

    assert said(sidecar, script) == found


@pytest.mark.parametrize("shared", [True, False])
def test_a_teacher_in_the_memory_of_its_student(sidecar, shared):
    def script():
        pair = nn.ModuleDict({"student": Model(), "teacher": Model()})
        pair["teacher"].requires_grad_(requires_grad=False)
        for target, source in zip(pair["teacher"].parameters(), pair["student"].parameters(), strict=True):
            target.data = source.data if shared else source.data.clone()
        optimizer = sgd(pair["student"])

        def follow(_step):
            with torch.no_grad():
                for target, source in zip(
                    pair["teacher"].parameters(), pair["student"].parameters(), strict=True
                ):
                    target.lerp_(source, 0.1)

        train(pair["student"], optimizer, 4, (lambda _step: None) if shared else follow)

    assert said(sidecar, script) == ([(FROZEN, 0)] if shared else [])


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, 4, bias=False)
        self.lora_B = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x))


@pytest.mark.parametrize("frozen", [True, False])
def test_base_weights_under_adapters(sidecar, frozen):
    def script():
        model = Model()
        model.body[0], model.middle[0] = Adapted(model.body[0]), Adapted(model.middle[0])
        for module in (model.body[0], model.middle[0]):
            module.base.requires_grad_(requires_grad=not frozen)
        train(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2))

    assert said(sidecar, script) == ([] if frozen else [(FROZEN, 0)])
