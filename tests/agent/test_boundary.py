"""The agent in this process, with real optimizers and a socket as its sidecar."""

import copy
import gc
import math
import signal
import sys
import threading

import pytest
import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.probes import settings

NAN = math.nan
OBSERVE = (policy.Rule(severity="info"),)
SKIP = (policy.Rule(action="Skip"),)


def train(model, x, optimizer=None, lr=0.1):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    return optimizer


def kinds(sidecar, steps):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return [(said.kind, said.severity, said.step) for said in sidecar.of(wire.Finding)]


def test_a_healthy_step_is_told_with_its_loss_and_norm(attach, sidecar):
    attach()
    model = nn.Linear(2, 1)
    train(model, torch.ones(1, 2))
    assert kinds(sidecar, 1) == []
    (taken,) = sidecar.of(wire.StepTaken)
    assert (taken.step, taken.rank) == (0, 0)
    assert taken.gradient_norm == pytest.approx(math.sqrt(3))
    assert taken.loss is not None


def test_losses_of_micro_batches_add_up(attach, sidecar):
    attach()
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for scale in (1.0, 2.0, 4.0):
        (parameter * scale).sum().backward()
    optimizer.step()
    kinds(sidecar, 1)
    assert sidecar.of(wire.StepTaken)[0].loss == 7.0


def test_skip_leaves_the_parameters_and_the_next_step_is_healthy(attach, sidecar):
    attach(SKIP)
    model = nn.Linear(2, 1)
    before = copy.deepcopy(model.state_dict())
    optimizer = train(model, torch.full((1, 2), NAN), torch.optim.AdamW(model.parameters(), weight_decay=0.5))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    train(model, torch.ones(1, 2), optimizer)
    assert kinds(sidecar, 2) == [("NonFiniteLoss", "critical", 0), ("NonFiniteGradient", "critical", 0)]


def test_a_closure_is_watched_behind_its_first_call(attach, sidecar):
    attach(SKIP)
    model = nn.Linear(2, 1)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.full((1, 2), NAN)).sum()
        loss.backward()
        return loss

    assert math.isnan(optimizer.step(closure).detach())
    assert math.isnan(optimizer.step(closure=closure).detach())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert {step for _, _, step in kinds(sidecar, 2)} == {0, 1}


def test_lbfgs_gives_the_same_numbers(attach, sidecar):
    def minimum():
        torch.manual_seed(0)
        parameter = nn.Parameter(torch.randn(3))
        optimizer = torch.optim.LBFGS([parameter], max_iter=5)

        def closure():
            optimizer.zero_grad()
            loss = ((parameter - 2) ** 4).sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        return parameter.detach().clone()

    alone = minimum()
    attach()
    assert torch.equal(minimum(), alone)
    assert kinds(sidecar, 2) == []


def test_a_norm_that_overflows_is_no_alarm(attach, sidecar):
    attach(SKIP)
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter], lr=1e-30)
    (parameter * 1e38).sum().backward()
    parameter.grad *= 3
    optimizer.step()
    assert kinds(sidecar, 1) == []
    assert parameter[0] != 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_other_types_are_read(attach, sidecar, dtype):
    attach()
    good, bad = nn.Parameter(torch.ones(2, dtype=dtype)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([good, bad], lr=0.1)
    good.grad, bad.grad = torch.ones(2, dtype=dtype), torch.tensor([1.0, NAN])
    optimizer.step()
    assert kinds(sidecar, 1) == [("NonFiniteGradient", "critical", 0)]


def test_sparse_and_empty_gradients_are_read(attach, sidecar):
    attach()
    embedding, empty = nn.Embedding(5, 2, sparse=True), nn.Parameter(torch.ones(0))
    optimizer = torch.optim.SGD([*embedding.parameters(), empty], lr=0.1)
    empty.grad = torch.ones(0)
    (embedding(torch.tensor([1, 1])) * torch.tensor([[1.0, NAN]])).sum().backward()
    optimizer.step()
    assert ("NonFiniteGradient", "critical", 0) in kinds(sidecar, 1)
    assert sidecar.findings("NonFiniteGradient", 0)[0].parameter == "weight"


@pytest.mark.parametrize("fused", [True, False])
def test_an_overflow_that_a_scaler_skips_is_no_alarm(attach, sidecar, fused):
    attach(SKIP)
    parameter = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (math.inf, 1.0):
        optimizer.zero_grad()
        loss = (parameter * 2).sum() * 1
        scaler.scale(loss).backward()
        parameter.grad *= factor
        scaler.step(optimizer)
        scaler.update()
    assert kinds(sidecar, 2 if fused else 1) == []
    last = sidecar.of(wire.StepTaken)[-1]
    assert last.loss == 8.0
    assert last.gradient_norm == pytest.approx(4.0)


def test_a_parameter_that_was_bad_from_the_start_is_found_at_the_first_step(attach, sidecar):
    attach()
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    with torch.no_grad():
        model[0].bias.fill_(math.inf)
    train(model, torch.ones(1, 2))
    assert kinds(sidecar, 1)[0] == ("NonFiniteParameter", "critical", 0)
    assert sidecar.findings("NonFiniteParameter", 0)[0].parameter == "0.bias"


def test_a_mask_of_infinities_is_healthy_and_a_nan_in_a_buffer_is_not(attach, sidecar):
    probes = settings.read('{"NonFiniteParameter": {"every": 2}}')
    attach(probes=probes)
    model = nn.Linear(2, 1)
    model.register_buffer("mask", torch.full((2, 2), -math.inf))
    model.register_buffer("seen", torch.zeros(2))
    optimizer = train(model, torch.ones(1, 2))
    train(model, torch.ones(1, 2), optimizer)
    assert kinds(sidecar, 2) == []
    model.seen[0] = math.inf
    train(model, torch.ones(1, 2), optimizer)
    assert kinds(sidecar, 3) == [("NonFiniteParameter", "critical", 2)]
    assert sidecar.findings("NonFiniteParameter", 2)[0].parameter == "seen"


def test_a_probe_that_is_switched_off_says_nothing(attach, sidecar):
    attach(probes=settings.read('{"NonFiniteGradient": {"enabled": false}}'))
    train(nn.Linear(2, 1), torch.full((1, 2), NAN))
    assert {kind for kind, _, _ in kinds(sidecar, 1)} == {"NonFiniteLoss"}


def test_names_have_no_wrappers_in_them(attach, sidecar):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 1)  # a user's own name

        def forward(self, x):
            return self.module(x)

    attach()
    model = nn.DataParallel(nn.Sequential(Outer()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.module(torch.full((1, 2), NAN)).sum().backward()
    optimizer.step()
    kinds(sidecar, 1)
    assert sidecar.findings("NonFiniteGradient", 0)[0].parameter == "0.module.weight"


def test_two_optimizers_count_by_themselves_and_the_job_by_the_larger(attach, sidecar):
    attach()
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    one, two = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second))
    train(first, torch.ones(1, 2), one)
    train(first, torch.ones(1, 2), one)
    train(second, torch.ones(1, 2), two)
    kinds(sidecar, 3)
    assert [taken.step for taken in sidecar.of(wire.StepTaken)] == [0, 1, 1]


def test_no_graph_is_kept_alive(attach):
    attach()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    gc.collect()
    node = sys.getrefcount(loss)
    assert node == 2


def test_an_error_of_its_own_ends_the_agent_and_not_the_training(attach, sidecar, capsys):
    attached = attach(SKIP)
    attached.agent.local = None  # as a mistake of ours might leave it
    model = nn.Linear(2, 1)
    optimizer = train(model, torch.ones(1, 2))
    train(model, torch.ones(1, 2), optimizer)
    assert capsys.readouterr().err.count("stepwarden: rank 0: the agent failed and is off") == 1
    sidecar.wait(lambda heard: any("agent" in state.unknown for state in heard.of(wire.RankState)))


def test_a_sidecar_that_does_not_read_costs_messages_and_no_step(attach, sidecar):
    attached = attach()
    sidecar.open = False
    sidecar.thread.join()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(2000):
        train(model, torch.ones(1, 2), optimizer)
    assert attached.agent.standing.step == 1999
    assert attached.agent.standing.link.dropped > 0
    sidecar.socket.close()
    (sidecar.folder / wire.SIDECAR_SOCKET).unlink()


def test_detaching_restores_what_was_wrapped(attach):
    before = (torch.autograd.backward, torch.amp.GradScaler.scale, sys.excepthook)
    attached = attach()
    assert torch.autograd.backward is not before[0]
    attached.detach()
    assert (torch.autograd.backward, torch.amp.GradScaler.scale, sys.excepthook) == before


def test_a_hold_can_be_interrupted(attach, sidecar):
    """What Ctrl-C raises in the waiting thread reaches the user's code."""
    attach(policy.DEFAULT_RULES)

    def interrupt(heard):
        heard.wait(lambda sidecar: sidecar.held(0))
        signal.raise_signal(signal.SIGINT)

    person = threading.Thread(target=interrupt, args=(sidecar,))
    person.start()
    with pytest.raises(KeyboardInterrupt):
        train(nn.Linear(2, 1), torch.full((1, 2), NAN))
    person.join()
