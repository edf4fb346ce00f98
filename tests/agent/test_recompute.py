"""Activation checkpointing in this process: what is recomputed as it was, and what is not."""

import functools
import random

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from stepwarden import policy, wire

CHANCE = random.Random(0)  # noqa: S311 - what a program draws beside torch
OBSERVE = (policy.Rule(severity="info"),)


def checkpoint(*args, **kwargs):
    """As a program that imports it late."""
    return torch.utils.checkpoint.checkpoint(*args, **kwargs)


class Model(nn.Module):
    def __init__(self, body, **options):
        super().__init__()
        self.stem, self.body, self.head = nn.Linear(8, 8), body, nn.Linear(8, 1)
        self.options = {"use_reentrant": False} | options

    def forward(self, x):
        return self.head(checkpoint(self.body, self.stem(x), **self.options))


class Part(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.linear, self.count = function, nn.Linear(8, 8), 0
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        self.count += 1
        return self.linear(torch.tanh(self.function(self, x))).relu()


def train(model, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        losses.append(model(torch.randn(16, 8)).square().mean())
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses).tolist()


def said(sidecar, steps=2):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return [found for found in sidecar.of(wire.Finding) if found.kind == "RecomputeMismatch"]


def batch_norm(**options):
    return lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, **options), nn.ReLU(), nn.Linear(8, 8))


def half(part, x):
    with torch.autocast("cpu", torch.bfloat16):
        return part.linear(x).float()


def counts(part, x):
    part.calls += 1
    return x


def logs(part, x):
    part.seen = CHANCE.random()
    part.total = getattr(part, "total", torch.zeros(())) + x.detach().mean()
    return x


def writes_in_parts(_part, x):
    out = torch.empty(x.shape)
    out[:, :4] = x[:, :4] * 2
    out[:, 4:] = x[:, 4:]
    return x + out.detach()


def on_grad(_part, x):
    return x * 2 if torch.is_grad_enabled() else x + x


def nested(_part, x):
    return checkpoint(lambda y: torch.dropout(y, 0.3, train=True).sin(), x, use_reentrant=False)


HEALTHY = {
    "plain": lambda: Part(lambda _, x: x),
    "dropout": lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 8)),
    "batch norm in evaluation": lambda: batch_norm()().eval(),
    "batch norm without statistics": batch_norm(track_running_stats=False),
    "momentum made for two updates": batch_norm(momentum=1 - (1 - 0.1) ** 0.5),
    "cumulative average": batch_norm(momentum=None),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)),
    "half precision": lambda: Part(half),
    "counts its calls": lambda: Part(counts),
    "logs": lambda: Part(logs),
    "memory set in parts": lambda: Part(writes_in_parts),
    "nested": lambda: Part(nested),
    "in place": lambda: nn.Sequential(nn.Linear(8, 8), nn.SiLU(inplace=True), nn.Linear(8, 8)),
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY)
def test_nothing_is_said_of_what_is_recomputed_as_it_was(attach, sidecar, make, reentrant):
    torch.manual_seed(7)
    alone = train(Model(make(), use_reentrant=reentrant))
    attached = attach()
    torch.manual_seed(7)
    assert train(Model(make(), use_reentrant=reentrant)) == alone
    assert said(sidecar) == []
    assert "RecomputeMismatch" not in attached.agent.host.unknown


def test_a_branch_on_gradients_is_no_mismatch(attach, sidecar):
    attach()
    train(Model(Part(on_grad), use_reentrant=True))
    assert said(sidecar) == []


def draws(_part, x):
    return x * CHANCE.random()


def skips(part, x):
    return x if part.count % 2 else torch.sin(x)


def unset(part, x):
    padded = torch.empty(16, 8)
    padded[:8] = 0.5
    padded.numpy()[8:] = part.count  # as if the allocator had found it so
    return x + padded


def codebook(part, x):
    x = x + part.average
    part.average.mul_(0.5).add_(x.detach().mean(0), alpha=0.5)
    return x


FAULTS = {
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)), "dropout", "body.1"),
    "python's random numbers": (lambda: Part(draws), "mul", "body"),
    "memory left unset": (lambda: Part(unset), "add", "body"),
    "a state that moves": (lambda: Part(codebook), "add", "body"),
    "batch norm": (batch_norm(), "batch_norm", "body.1"),
    "instance norm": (
        lambda: nn.Sequential(
            *(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, track_running_stats=True)),
            *(nn.Flatten(), nn.Tanh()),
        ),
        "instance_norm",
        "body.1",
    ),
}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_recomputed_otherwise_is_named(attach, sidecar, fault, reentrant):
    make, op, module = fault
    attach()
    options = {"preserve_rng_state": False} if op == "dropout" else {}
    train(Model(make(), use_reentrant=reentrant, **options))
    (found,) = said(sidecar)
    assert (found.step, found.severity, found.op, found.module) == (0, "warning", op, module)
    assert found.file == __file__


def test_another_way_is_named_where_it_joins_again(attach, sidecar):
    attach()
    train(Model(Part(skips), use_reentrant=True))  # without it torch itself raises
    (found,) = said(sidecar)
    assert (found.op, found.module) == ("tanh", "body")


FORMS = {"partial": lambda function, options: functools.partial(checkpoint, function, **options)}
if hasattr(torch.utils.checkpoint, "_CheckpointedFunction"):
    FORMS["decorator"] = lambda function, options: checkpoint(**options)(function)


class Method(nn.Linear):
    """Its method is checkpointed, in one form or another."""

    def forward(self, x):
        return FORMS[self.form](self.inside, {"preserve_rng_state": False, "use_reentrant": False})(x)

    def inside(self, x):
        return nn.functional.dropout(super().forward(x), 0.5)


@pytest.mark.parametrize("form", FORMS)
def test_a_method_is_watched_in_each_form_of_the_call(attach, sidecar, form):
    attach()
    method = Method(8, 8)
    method.form = form
    train(nn.Sequential(nn.Linear(8, 8), method))
    (found,) = said(sidecar)
    assert (found.op, found.module, found.file) == ("dropout", "1", __file__)
    assert "without preserve_rng_state=False" in found.message


class InSegments(nn.Sequential):
    def forward(self, x):
        options = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.utils.checkpoint.checkpoint_sequential(self, 3, x, **options)


def test_checkpoint_sequential_is_watched(attach, sidecar):
    attach()
    layers = InSegments(*(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)) for _ in range(3)))
    train(nn.Sequential(nn.Linear(8, 8), layers))
    (found,) = said(sidecar)
    assert (found.module, found.file, found.evidence["parts"]) == ("1.0.1", __file__, 2)


def test_the_wrapper_of_torch_distributed_is_watched(attach, sidecar):
    attach()
    train(
        nn.Sequential(nn.Linear(8, 8), checkpoint_wrapper(nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 8))))
    )
    (found,) = said(sidecar)
    assert (found.op, found.module) == ("batch_norm", "1.0")


def test_every_part_is_looked_at_once_in_a_period(attach):
    attached = attach()
    (watch,) = [each for each in attached.agent.crew.watches if type(each).__name__ == "Recompute"]
    train(Model(Part(lambda _, x: x)), steps=3)
    assert set(watch.looked.values()) == {0}
    assert watch.pending == type(watch.pending)()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo's
@pytest.mark.xfail(
    not hasattr(torch.utils.checkpoint, "CheckpointPolicy"),
    raises=torch.utils.checkpoint.CheckpointError,
    reason="torch before 2.5 fails at such a part by itself",
)
def test_what_is_compiled_is_not_looked_into(attach, sidecar):
    attach()
    compiled = torch.compile(torch.sin, backend="eager")
    train(Model(Part(lambda _, x: compiled(x))))
    assert said(sidecar) == []


@pytest.mark.xfail(
    not hasattr(torch.utils.checkpoint, "CheckpointPolicy"),
    raises=AttributeError,
    reason="torch before 2.5 has no such policies",
)
def test_a_policy_that_saves_some_activations_sees_none_of_our_operators(attach, sidecar):
    attach()
    seen = []

    def policy_of(_ctx, op, *_args, **_kwargs):
        seen.append(str(op))
        return torch.utils.checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    def context():
        return torch.utils.checkpoint.create_selective_checkpoint_contexts(policy_of)

    train(Model(nn.Linear(8, 8), context_fn=context), steps=1)
    assert set(seen) == {"aten.t.default", "aten.addmm.default"}
    assert said(sidecar, 1) == []


def test_an_error_of_the_part_is_its_own(attach):
    attach()

    def fails(_part, x):
        raise KeyError(x.shape)

    with pytest.raises(KeyError):
        train(Model(Part(fails)))


def test_detaching_puts_everything_back(attach):
    before = torch.utils.checkpoint.checkpoint, torch.compile
    attached = attach()
    assert torch.utils.checkpoint.checkpoint is not before[0]
    attached.detach()
    assert (torch.utils.checkpoint.checkpoint, torch.compile) == before
