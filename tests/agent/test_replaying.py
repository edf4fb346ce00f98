"""A bad step is run again: who is named for it, and that nothing is changed by that."""

import math
from pathlib import Path

import faulty
import pytest
import torch
from faulty import PARTS, Around, Checkpointed, Distance, Exponent, Root, line, told, train
from torch import nn
from torch.profiler import record_function

NAN = math.nan
LINES = Path(__file__).read_text().splitlines()


@pytest.mark.parametrize("name", PARTS)
def test_the_operator_of_a_bad_step_is_named(attach, sidecar, name):
    part, op, mark, forward = PARTS[name]
    attach()
    train(Around(part()), torch.randn(8, 4))
    found = told(sidecar)
    said = found["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == (op, "part", line(mark))
    assert said.file == faulty.__file__
    assert said.evidence["replay"]["status"] == "ok"
    assert ("NonFiniteActivation" in found) == forward
    assert (said.parameter or "").startswith(("stem", "norm", "head"))


@pytest.mark.filterwarnings("ignore:`torch.cpu.amp.autocast:FutureWarning")  # torch 2.4's own
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["div", "sqrt"])
def test_a_fault_in_a_recomputed_part_is_blamed_on_that_part(attach, sidecar, name, reentrant):
    part, op, mark, _ = PARTS[name]
    attach()
    train(Around(Checkpointed(part(), reentrant=reentrant)), torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == (op, "part.inner", line(mark))


def test_a_compiled_model_is_run_again_eagerly(attach, sidecar):
    attach()
    model = torch.compile(Around(Root()), backend="aot_eager")
    train(model, torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == ("sqrt", "part", line("taken nowhere"))


def test_a_model_that_is_compiled_in_place_is_run_again_eagerly(attach, sidecar):
    attach()
    model = Around(Root())
    model.compile(backend="aot_eager")
    train(model, torch.randn(8, 4))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module, said.line) == ("sqrt", "part", line("taken nowhere"))
    assert model._compiled_call_impl is not None  # noqa: SLF001 - what torch keeps there


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
    train(Around(nn.ReLU()), x)
    found = told(sidecar)
    said = found["NonFiniteGradient"]
    assert (said.op, said.module) == (None, "")
    assert "the input of Around (argument 0) itself holds NaN" in said.message
    assert "NonFiniteActivation" not in found


def test_a_bad_row_of_an_embedding_is_named(attach, sidecar):
    attach()
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 1))
    model[0].weight.data[3, 2] = math.inf
    train(model, torch.tensor([1, 3]))
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.parameter, said.module) == ("0.weight", "0")
    assert "holds Inf itself" in said.message


def test_a_fault_in_the_loss_code_is_named_there(attach, sidecar):
    attach()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model(torch.randn(8, 4))
    loss = -torch.log10(torch.relu(output) * 0).mean()
    loss.backward()
    optimizer.step()
    found = told(sidecar)
    for said in (found["NonFiniteLoss"], found["NonFiniteGradient"]):
        assert (said.op, said.line, said.module) == ("log10", loss_line("torch.log10("), None)
        assert "Log10Backward0" in said.evidence["loss_graph"]
    assert "NonFiniteActivation" not in found


def loss_line(text):
    """Return the number of the one line of this file outside of strings that holds a text."""
    found = [number for number, one in enumerate(LINES, 1) if text in one and f'"{text}' not in one]
    return found[0]


@pytest.mark.parametrize(
    ("loss", "op"),
    [
        pytest.param(lambda output: output.sum() / (output.detach() * 0).sum(), "div", id="no divisor"),
        pytest.param(lambda output: (output - output.detach()).square().mean().sqrt(), "sqrt", id="no error"),
        pytest.param(lambda output: torch.exp(output.square().sum() + 1e3), "exp", id="overflow"),
        pytest.param(lambda output: (output * 0).pow(0.5).sum(), "pow", id="a root of zero"),
    ],
)
def test_what_the_loss_saved_tells_the_operator(attach, sidecar, loss, op):
    attach()
    train(nn.Linear(4, 1), torch.randn(8, 4), loss=loss)
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module) == (op, None)
    assert "between the model's output and backward()" in said.message


def test_a_bad_target_is_said_to_be_one(attach, sidecar):
    attach()
    target = torch.full((8, 1), NAN)
    train(nn.Linear(4, 1), torch.randn(8, 4), loss=lambda output: nn.functional.mse_loss(output, target))
    said = told(sidecar)["NonFiniteGradient"]
    assert said.op is None
    assert "the target of mse_loss itself holds NaN or Inf" in said.message


def test_a_loss_that_is_a_module_is_run_again_too(attach, sidecar):
    class Loss(nn.Module):
        def forward(self, output):
            return torch.log2(output * 0).mean()

    attach()
    criterion = Loss()
    train(nn.Linear(4, 1), torch.randn(8, 4), loss=criterion)
    found = told(sidecar)
    assert (found["NonFiniteGradient"].op, found["NonFiniteGradient"].line) == (
        "log2",
        loss_line("torch.log2("),
    )
    assert "NonFiniteActivation" in found


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
