"""A bad step is run again: who is named for it, and that nothing is changed by that."""

import copy
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

NAN = math.nan
OBSERVE = (policy.Rule(severity="info"),)
SKIP = (policy.Rule(action="Skip"),)
LINES = Path(__file__).read_text().splitlines()


@pytest.fixture
def attach(sidecar):
    made = []

    def make(rules=OBSERVE, **more):
        made.append(Attached(Environment(rank=0, directory=str(sidecar.folder), rules=rules, **more)))
        return made[-1]

    yield make
    for attached in made:
        attached.detach()


def line(mark):
    """Return the number of the line of this file that ends with a mark."""
    (found,) = [number for number, text in enumerate(LINES, 1) if text.endswith(f"# {mark}")]
    return found


def told(sidecar, steps=1):
    """Return the findings about what is not finite, by kind."""
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return {said.kind: said for said in sidecar.of(wire.Finding) if said.kind.startswith("NonFinite")}


def step(model, *inputs, loss=lambda output: output.sum(), optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss(model(*inputs)).backward()
    optimizer.step()
    return optimizer


class Around(nn.Module):
    """A part, between a layer with statistics, one with random numbers, and a head."""

    def __init__(self, part, width=4):
        super().__init__()
        self.stem = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.25)
        self.part = part
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.part(self.drop(self.norm(self.stem(x)))))


class OwnNorm(nn.Module):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        spread = (x * 0).sum(-1, keepdim=True)
        return centred / spread  # zero spread


class Root(nn.Module):
    def forward(self, x):
        return torch.where(x > 10, (x * 0).sqrt(), x)  # taken nowhere


class Exponent(nn.Module):
    def forward(self, x):
        y = x.half() + 20
        return torch.exp(y).float()  # overflows


class MaskedRows(nn.Module):
    def forward(self, x):
        scores = x.masked_fill(torch.ones_like(x, dtype=torch.bool), -math.inf)
        return torch.softmax(scores, -1)  # masked as a whole


class Checkpointed(nn.Module):
    def __init__(self, inner, *, reentrant):
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (ctx.saved_tensors[0] * 0)


class OwnBackward(nn.Module):
    def forward(self, x):
        return Own.apply(x)  # own backward


class Masking(nn.Module):
    """A NaN that is masked away, before one that is not."""

    def forward(self, x):
        harmless = torch.where(x < math.inf, x, torch.log(-x.abs()))
        return harmless + torch.log(x * 0).clamp(min=-1)  # of zero


PARTS = {
    "div": (OwnNorm, "div", "zero spread", True),
    "sqrt": (Root, "sqrt", "taken nowhere", False),
    "exp": (Exponent, "exp", "overflows", True),
    "softmax": (MaskedRows, "softmax", "masked as a whole", True),
    "function": (OwnBackward, "Own", "own backward", False),
    "masked": (Masking, "log", "of zero", True),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_operator_of_a_bad_step_is_named(attach, sidecar, name):
    part, op, mark, forward = PARTS[name]
    attach()
    step(Around(part()), torch.randn(8, 4))
    found = told(sidecar)
    said = found["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == (op, "part", line(mark))
    assert said.file == __file__
    assert said.evidence["replay"]["status"] == "ok"
    assert ("NonFiniteActivation" in found) == forward
    assert (said.parameter or "").startswith(("stem", "norm", "head"))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_a_fault_in_a_recomputed_part_is_blamed_on_that_part(attach, sidecar, name, reentrant):
    part, op, mark, _ = PARTS[name]
    attach()
    step(Around(Checkpointed(part(), reentrant=reentrant)), torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == (op, "part.inner", line(mark))


def test_a_compiled_model_is_run_again_eagerly(attach, sidecar):
    attach()
    model = torch.compile(Around(Root()), backend="aot_eager")
    step(model, torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == ("sqrt", "part", line("taken nowhere"))


def test_a_model_that_is_compiled_in_place_is_run_again_eagerly(attach, sidecar):
    attach()
    model = Around(Root())
    model.compile(backend="aot_eager")
    step(model, torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == ("sqrt", "part", line("taken nowhere"))
    assert model._compiled_call_impl is not None  # noqa: SLF001 - what torch keeps there


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.proj(x).pow(2).sum(-1).sqrt()  # of a zero row


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_micro_batches_are_tried_until_one_is_bad(attach, sidecar, bad):
    attach()
    model = Distance()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(3):
        x = torch.randn(8, 4)
        x[3] *= index != bad
        (model(x).mean() / 3).backward()
    optimizer.step()
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.line, said.module) == ("sqrt", line("of a zero row"), "")


def test_a_bad_input_is_said_to_be_one(attach, sidecar):
    attach()
    x = torch.randn(8, 4)
    x[2, 1] = NAN
    step(Around(nn.ReLU()), x)
    found = told(sidecar)
    said = found["NonFiniteGradient"]
    assert (said.op, said.module) == (None, "")
    assert "the input of Around (argument 0) itself holds NaN" in said.message
    assert "NonFiniteActivation" not in found


def test_a_bad_row_of_an_embedding_is_named(attach, sidecar):
    attach()
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 1))
    model[0].weight.data[3, 2] = math.inf
    step(model, torch.tensor([1, 3]))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.parameter, said.module) == ("0.weight", "0")
    assert "holds Inf itself" in said.message


def test_a_fault_in_the_loss_code_is_named_there(attach, sidecar):
    attach()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model(torch.randn(8, 4))
    loss = -torch.log10(torch.relu(output) * 0).mean()  # outside of the model
    loss.backward()  # called here
    optimizer.step()
    found = told(sidecar)
    for said in (found["NonFiniteLoss"], found["NonFiniteGradient"]):
        assert (said.op, said.line, said.module) == ("log10", line("outside of the model"), None)
        assert "Log10Backward0" in said.evidence["loss_graph"]
    assert "NonFiniteActivation" not in found


def test_two_models_in_a_row_are_told_apart(attach, sidecar):
    attach()
    encoder, head = nn.Linear(4, 4), Around(Root())
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    head(encoder(torch.randn(8, 4))).sum().backward()
    optimizer.step()
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == ("sqrt", "part", line("taken nowhere"))


def test_casts_hold_in_the_replay_and_none_is_left(attach, sidecar):
    attach()
    model = Around(Exponent())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 4)).sum()
    loss.backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        optimizer.step()
        with torch.no_grad():
            model.head.weight.fill_(1.0)
            model.head.bias.fill_(2.0)
        assert model.head(torch.ones(1, 4)).item() == 6.0
    assert told(sidecar)["NonFiniteGradient"].op == "exp"


def test_labels_are_tied_to_the_operator(attach, sidecar):
    class Labelled(nn.Module):
        def forward(self, x):
            with record_function("attention"), record_function("log_softmax_stable"):
                return torch.log(x * 0)

    attach()
    model = Around(Labelled())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record_function("forward_pass"):
        loss = model(torch.randn(8, 4)).sum()
    loss.backward()
    with record_function("update"):
        optimizer.step()
    found = told(sidecar)
    labels = {said.label for said in found.values() if said.kind != "NonFiniteParameter"}
    assert labels == {"forward_pass > attention > log_softmax_stable"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda x, _: x.add_(1), "an input was changed in place since", id="input"),
        pytest.param(lambda _, model: model.mask.add_(0), "a buffer of 2097152 values", id="buffer"),
    ],
)
def test_what_is_gone_is_said(attach, sidecar, change, reason):
    class WithMask(Around):
        def __init__(self):
            super().__init__(Root())
            self.register_buffer("mask", torch.zeros(1 << 21))

    attach()
    model, x = WithMask(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    change(x, model)
    optimizer.step()
    said = told(sidecar)["NonFiniteGradient"]
    assert said.evidence["replay"]["status"] == "unknown"
    assert reason in said.evidence["replay"]["reason"]
    assert said.op is None


def test_without_a_module_call_there_is_nothing_to_run(attach, sidecar):
    attach()
    parameter = nn.Parameter(torch.zeros(3))
    parameter.sqrt().sum().backward()
    parameter.grad += NAN
    torch.optim.SGD([parameter], lr=0.1).step()
    said = told(sidecar)["NonFiniteGradient"]
    assert "no module call" in said.evidence["replay"]["reason"]


def test_a_model_that_changes_its_input_is_run_again_from_the_second_step_on(attach, sidecar):
    attach(SKIP)
    model = nn.Sequential(nn.ReLU(inplace=True), Distance())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, torch.randn(8, 4).abs(), optimizer=optimizer)
    x = torch.randn(8, 4).abs()
    x[3] = -1
    step(model, x, optimizer=optimizer)
    said = told(sidecar, 2)["NonFiniteGradient"]
    assert (said.step, said.op) == (1, "sqrt")


class Moving(Around):
    """A model that changes itself in each forward pass, in all ways."""

    def __init__(self):
        super().__init__(OwnNorm())
        self.register_buffer("codes", torch.zeros(3))
        self.count, self.seen = 0, []
        self.last = None

    def forward(self, x):
        self.codes += torch.rand(3)
        self.count += random.randrange(10) + np.random.randint(10)  # noqa: NPY002, S311 - the global ones are meant
        self.seen.append(self.count)
        self.last = x.mean()
        return super().forward(x + self.codes.sum())


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
    step(model, torch.randn(8, 4))
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
    def train(*, skipping):
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

    alone = train(skipping=True)
    attach(SKIP)
    watched = train(skipping=False)
    assert told(sidecar, 4)["NonFiniteGradient"].op == "sqrt"
    assert torch.equal(alone[1], watched[1])
    assert all(torch.equal(value, watched[0][name]) for name, value in alone[0].items())


def test_a_step_that_a_scaler_skips_leaves_nothing_behind(attach, sidecar):
    attached = attach()
    (watch,) = [one for one in attached.agent.crew.watches if type(one).__name__ == "Replaying"]
    model = Around(nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for _ in range(3):
        scaler.scale(model(torch.randn(8, 4)).sum() * 100).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert len(watch.calls) == 1
    assert not sidecar.of(wire.Finding)


def test_a_framework_that_lends_a_model_its_forward_is_followed(attach, sidecar):
    attach()
    model = Around(Root())
    original = model.forward

    def lent(x, target):
        model.forward = original
        return (model.forward(x) - target).sum()

    model.forward = lent
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 4), torch.zeros(8, 1)).backward()
    optimizer.step()
    assert told(sidecar)["NonFiniteGradient"].op == "sqrt"
