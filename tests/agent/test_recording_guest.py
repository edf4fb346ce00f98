"""What the recording of a step leaves as it is: modes, errors, memory, compiled code."""

import gc
import weakref

import pytest
import torch
from recorded import KIND, Pair, said, step
from torch import _dynamo as dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.overrides import TorchFunctionMode

from stepwarden.agent.trace import Recorder, standing


class Noting(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Noting, lambda: torch.device("cpu")])
def test_modes_of_the_users_stand_as_they_did(attach, sidecar, mode):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    with mode():
        out = model(torch.rand(8, 4))
        inside = [one for one in standing.modes() if not isinstance(one, Recorder)]
    assert [one for one in standing.modes() if not isinstance(one, Recorder)] == []
    assert len(inside) == 1
    with mode():
        loss = out.sum()
    loss.backward()
    optimizer.step()
    assert standing.modes() == []
    assert said(sidecar, 1) == []


def test_a_default_device_that_comes_and_goes(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.set_default_device("cpu")
    try:
        out = model(torch.rand(8, 4))
    finally:
        torch.set_default_device(None)
    step(optimizer, out.sum())
    assert standing.modes() == []
    assert said(sidecar, 1) == []


def test_a_forward_pass_that_raises_and_is_tried_again(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError):
        model(torch.rand(8, 5))
    step(optimizer, model(torch.rand(8, 4)).sum())
    assert said(sidecar, 1) == []
    assert standing.modes() == []


def test_an_error_in_a_backward_pass_is_the_users(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.rand(8, 4)).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    optimizer.step()
    assert said(sidecar, 1) == []


def test_a_recording_that_fails_ends_and_the_operator_runs_once(attach, sidecar, monkeypatch):
    attached = attach()
    monkeypatch.setattr("stepwarden.agent.trace.book.Book.end", lambda *_: 1 / 0)
    calls = []

    class Counting(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            calls.append(1)
            return x * 2

        @staticmethod
        def backward(_, grad):
            return grad * 2

    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(optimizer, model.head(Counting.apply(model.body(torch.rand(8, 4)).detach())).sum())
    assert said(sidecar, 1) == []
    assert calls == [1]
    assert attached.agent.unknown()[KIND] == "NotRecorded"


def test_no_tensor_is_kept_alive(attach, sidecar):
    attach()
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gc.collect()
    gc.disable()
    try:
        hidden = model.body(torch.rand(8, 4))
        array = hidden.detach().numpy()
        gone = [weakref.ref(hidden), weakref.ref(array)]
        out = model.head(hidden.tanh())
        del hidden, array
        assert [one() for one in gone] == [None, None]
        step(optimizer, out.sum())
    finally:
        gc.enable()
    assert said(sidecar, 1) == []


def test_a_frozen_encoder_in_evaluation_takes_its_fast_path(attach, sidecar):
    def train():
        torch.manual_seed(0)
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ).eval()
        model = nn.Linear(8, 1)
        model.teacher = encoder
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            x = torch.rand(2, 5, 8)
            h = model(x)
            with torch.no_grad():
                goal = encoder(x)
            step(optimizer, (h - goal).square().mean())
        return goal

    alone = train()
    attach()
    assert torch.equal(train(), alone)
    said(sidecar, 2)


class Squaring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Cut(Pair):
    cut = True

    def forward(self, x):
        h = Squaring.apply(self.body(x))
        h = h.detach() if self.cut else h
        return self.head(h)


class Uncut(Cut):
    cut = False


def whole(model):
    return torch.compile(model, backend="eager", fullgraph=True)


def in_place(model):
    model.compile(backend="eager")
    return model


def function(model):
    compiled = torch.compile(lambda x: model(x).square(), backend="eager")
    outer = nn.Module()
    outer.model, outer.forward = model, compiled
    return outer


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch 2.4 itself
@pytest.mark.parametrize("compiled", [whole, in_place, function])
@pytest.mark.parametrize("kind", [Cut, Uncut])
def test_compiled_code_is_replayed_and_compiled_as_if_alone(attach, sidecar, compiled, kind):
    def train():
        torch.manual_seed(0)
        dynamo.reset()
        counters.clear()
        model = compiled(kind())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            step(optimizer, model(torch.rand(8, 4)).sum())
        values = [parameter.detach().clone() for parameter in model.parameters()]
        return values, dict(counters["stats"]), optimizer

    alone, compiles, _ = train()
    attached = attach()
    watched, again, optimizer = train()
    assert all(map(torch.equal, watched, alone))
    assert again == compiles
    found = [(one.step, one.op) for one in said(sidecar, 3)]
    if compiled is function and kind.cut and not hasattr(torch.compiler, "set_stance"):
        assert found == []  # before torch 2.6 a compiled function can't be run eagerly
        assert optimizer in attached.agent.judges
        assert attached.agent.unknown()[KIND] == "NotRecorded"
    else:
        assert found == ([(0, "detach")] if kind.cut else [])
