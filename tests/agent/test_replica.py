"""What a rank says of its steps as a replica, with real wrappers: one rank is enough to wrap a model."""

import copy
import io
from contextlib import nullcontext

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import settings
from stepwarden.probes.replicas import KINDS
from stepwarden.replica import Replica


@pytest.fixture(scope="module", autouse=True)
def group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def attach(sidecar):
    made = []

    def make(ranks=2, **off):
        only = settings.Settings({kind: {} for kind in KINDS if off.get(kind, True)})
        rules = (policy.Rule(severity="info"),)
        directory = str(sidecar.folder)
        made.append(Attached(Environment(rank=0, ranks=ranks, directory=directory, rules=rules, probes=only)))
        return made[-1]

    yield make
    for attached in made:
        attached.detach()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(model, steps=1, optimizer=None, forward=None, before=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (forward or model)(torch.randn(16, 8)).square().mean().backward()
        if before:
            before(model)
        optimizer.step()


def told(sidecar, count):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= count)
    return sidecar.of(Replica)


def test_a_step_of_a_replica_is_told_with_what_makes_it_comparable(attach, sidecar):
    attach()
    model = DistributedDataParallel(net())
    train(model, steps=2)
    first, second = told(sidecar, 2)
    assert (first.group, first.size, first.count, second.count) == ("0-0", 1, 0, 1)
    assert (first.tensors, first.rates, first.hint) == (4, (0.1,), "")
    assert first.digest != second.digest
    assert first.norm == pytest.approx(sidecar.of(wire.StepTaken)[0].gradient_norm)
    assert first.names == second.names != ""
    assert first.inputs != second.inputs != ""
    assert first.parameters
    assert not second.parameters
    assert len(first.samples) == len(second.samples) == 2
    assert first.own == pytest.approx(first.used)
    assert first.file == __file__


def test_twins_say_the_same(attach, sidecar):
    attach()
    for _ in range(2):
        torch.manual_seed(1)
        train(DistributedDataParallel(net()), steps=3)
    records = told(sidecar, 6)
    kept = ("digest", "norm", "sketch", "names", "parameters", "weight", "samples", "inputs", "own", "used")
    one, two = (
        [[getattr(each, name) for name in kept] for each in half] for half in (records[:3], records[3:])
    )
    assert one == two


def bypass(model):
    return {"forward": model.module}


def by_submodules(model):
    return {"forward": lambda x: model.module[2](model.module[1](model.module[0](x)))}


def late(model):
    model.require_backward_grad_sync = False

    def forward(x):
        out = model(x)
        model.require_backward_grad_sync = True
        return out

    return {"forward": forward}


def never(model):
    def forward(x):
        with model.no_sync():
            return model(x)

    model.require_backward_grad_sync = False
    return {"forward": forward}


def replaced(model):
    model.module.load_state_dict(copy.deepcopy(model.module.state_dict()), assign=True)
    return {}


def unfrozen(model):
    model.module[0].weight.requires_grad_()
    return {}


def unused(model):
    return {"before": lambda _: model.module[2].bias.__setattr__("grad", None)}


@pytest.mark.parametrize(
    ("how", "frozen", "said"),
    [
        (bypass, False, "past its DistributedDataParallel wrapper"),
        (by_submodules, False, "past its DistributedDataParallel wrapper"),
        (late, False, "changed between forward and backward"),
        (never, False, "ran under no_sync()"),
        (replaced, False, "made before 0.weight, 0.bias, 2.weight and 1 more took the place"),
        (unfrozen, True, "0.weight had requires_grad=False"),
        (unused, False, "2.bias got no gradient"),
    ],
)
def test_what_a_rank_sees_of_a_missing_reduction(attach, sidecar, how, frozen, said):
    attach()
    inner = net()
    inner[0].weight.requires_grad_(not frozen)
    model = DistributedDataParallel(inner)
    train(model, **how(model))
    [record] = told(sidecar, 1)
    assert said in record.hint
    assert record.file == __file__


def test_gradients_that_no_backward_pass_made_are_hinted_at(attach, sidecar):
    attach()
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = torch.autograd.grad(model(torch.randn(4, 8)).sum(), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        parameter.grad = gradient
    optimizer.step()
    assert "torch.autograd.grad" in told(sidecar, 1)[0].hint


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}],
    ids=lambda options: next(iter(options), "plain"),
)
def test_healthy_wrappers_give_no_hint_and_reduce_to_the_mean(attach, sidecar, options):
    attach()
    model = DistributedDataParallel(net(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        with nullcontext() if "static_graph" in options else model.no_sync():  # torch fails on both at once
            model(torch.randn(16, 8)).square().mean().backward()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    for record in told(sidecar, 3):
        assert record.hint == ""
        assert record.own == pytest.approx(record.used)


def test_a_factor_shows_in_the_measured_sums(attach, sidecar):
    attach()
    train(DistributedDataParallel(net()), before=lambda model: [p.grad.mul_(3) for p in model.parameters()])
    [record] = told(sidecar, 1)
    assert record.used == pytest.approx(3 * record.own)


def test_what_the_wrapper_leaves_out_is_left_out(attach, sidecar):
    attach()
    inner = net()
    inner._ddp_params_and_buffers_to_ignore = ["2.weight"]  # noqa: SLF001 - as torch documents it
    train(DistributedDataParallel(inner))
    [record] = told(sidecar, 1)
    assert record.tensors == 3


def test_a_loss_scale_is_told_and_taken_out_of_the_sums(attach, sidecar):
    attach()
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(model(torch.randn(16, 8)).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    [record] = told(sidecar, 1)
    assert record.scale == 256.0
    assert record.own == pytest.approx(record.used, rel=1e-4)


def test_local_sgd_is_not_compared(attach, sidecar):
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (  # noqa: PLC0415 - it warns
        PostLocalSGDState,
        post_localSGD_hook,
    )

    attach()
    model = DistributedDataParallel(net())
    model.register_comm_hook(PostLocalSGDState(None, None, start_localSGD_iter=100), post_localSGD_hook)
    train(model)
    [record] = told(sidecar, 1)
    assert record.group == ""
    assert "local SGD" in record.why


def test_a_model_without_a_wrapper_is_told_of_and_unknown(attach, sidecar):
    attached = attach()
    train(net())
    [record] = told(sidecar, 1)
    assert (record.group, record.size) == ("", 2)
    unknown = attached.agent.unknown()
    assert unknown["GradientNotSynchronized"] == unknown["DataRepeated"] == "NotDataParallel"


def test_a_single_rank_says_nothing(attach, sidecar):
    attach(ranks=1)
    train(net())
    assert told(sidecar, 1) == []


def test_a_kind_that_is_switched_off_is_not_told(attach, sidecar):
    attach(DataRepeated=False, ReplicasDiverged=False)
    train(DistributedDataParallel(net()))
    [record] = told(sidecar, 1)
    assert (record.inputs, record.parameters, record.samples, record.rates) == ("", "", (), ())
    assert record.digest


def test_the_training_is_the_same_to_the_bit_and_the_model_can_still_be_copied_and_saved(attach, sidecar):
    def weights():
        torch.manual_seed(3)
        model = DistributedDataParallel(net())
        train(model, steps=12)
        return model, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    alone = weights()[1]
    attach()
    model, watched = weights()
    assert torch.equal(alone, watched)
    torch.save(copy.deepcopy(model.module), io.BytesIO())
    told(sidecar, 12)


def test_a_batch_that_says_little_does_not_count(attach, sidecar):
    attach()
    model = DistributedDataParallel(net())
    for batch in (torch.ones(16, 8), torch.zeros(16, 8)):
        train(model, forward=lambda _, batch=batch: model(batch))
    assert [record.inputs for record in told(sidecar, 2)] == ["", ""]
