"""Where a replay ends: what is gone, sharded or skipped is said; other people's loops are followed."""

import math

import pytest
import torch
import torch.distributed as dist
from faulty import Around, Distance, Root, line, told, train
from torch import nn
from torch.distributed._tensor import distribute_module, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import record_function

from stepwarden import policy, wire

NAN = math.nan
SKIP = (policy.Rule(action="Skip"),)


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
    train(model, torch.randn(8, 4).abs(), optimizer=optimizer)
    x = torch.randn(8, 4).abs()
    x[3] = -1
    train(model, x, optimizer=optimizer)
    said = told(sidecar, 2)["NonFiniteGradient"]
    assert (said.step, said.op) == (1, "sqrt")


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


def test_calls_within_function_transforms_are_left_alone(attach, sidecar):
    attached = attach()
    model = nn.Linear(3, 2)
    parameters = dict(model.named_parameters())

    def loss(values, x):
        return torch.func.functional_call(model, values, (x,)).sum()

    torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, torch.ones(4, 3))
    train(Around(Root()), torch.randn(8, 4))
    assert told(sidecar)["NonFiniteGradient"].op == "sqrt"
    assert not attached.agent.host.unknown


def test_two_optimizers_of_one_backward_pass_share_the_explanation(attach, sidecar):
    attach()
    model = Around(Root())
    first = torch.optim.SGD(model.stem.parameters(), lr=0.1)
    second = torch.optim.SGD(model.norm.parameters(), lr=0.1)
    model(torch.randn(8, 4)).sum().backward()
    first.step()
    second.step()
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) == 2)
    found = [said for said in sidecar.of(wire.Finding) if said.kind == "NonFiniteGradient"]
    assert [(said.op, said.line) for said in found] == [("sqrt", line("taken nowhere"))] * 2


class Scale(nn.Module):
    """As plain as torch 2.4 needs it to be on a mesh of one rank."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 4))

    def forward(self, x):
        return x * self.weight


@pytest.mark.filterwarnings("ignore:DTensor random operators")
def test_a_sharded_model_is_not_run_again(attach, sidecar, tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        attach()
        mesh = init_device_mesh("cpu", (1,))
        model = distribute_module(Scale(), mesh)
        x = torch.randn(8, 4)
        x[1] = NAN
        train(model, distribute_tensor(x, mesh), loss=lambda output: output.to_local().sum())
        said = told(sidecar)["NonFiniteGradient"]
        assert (said.parameter, said.op) == ("weight", None)
        assert "sharded" in said.evidence["replay"]["reason"]
    finally:
        dist.destroy_process_group()


def test_a_model_prints_once(attach, sidecar, capsys):
    class Talking(Around):
        def forward(self, x):
            print("forward")  # noqa: T201 - as a model may
            return super().forward(x)

    attach()
    train(Talking(Root()), torch.randn(8, 4))
    assert told(sidecar)["NonFiniteGradient"].op == "sqrt"
    assert capsys.readouterr().out == "forward\n"


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_an_exception_of_anomaly_mode_is_tied_to_the_labels_of_the_forward_pass(attach, sidecar):
    class Labelled(Around):
        def forward(self, x):
            with record_function("attention"):
                return super().forward(x)

    attached = attach()
    model = Labelled(Root())
    with torch.autograd.set_detect_anomaly(mode=True):
        with record_function("forward_pass"):
            loss = model(torch.randn(8, 4)).sum()
        with pytest.raises(RuntimeError, match="returned nan values") as raised:
            loss.backward()
        attached.ending.failed(raised.value)
    (found,) = sidecar.wait(lambda heard: heard.of(wire.Finding))
    assert found.kind == "RankFailed"
    assert (found.op, found.module, found.line) == ("sqrt", "part", line("taken nowhere"))
    assert found.label == "forward_pass > attention"
    last = found.evidence["traceback"].splitlines()[-1]
    assert last.startswith("born of: the backward of sqrt in part")
    assert last.endswith("within forward_pass > attention")


def test_a_loss_that_is_left_on_a_module_is_found_in_the_model(attach, sidecar):
    class Beside(Around):
        def forward(self, x):
            hidden = super().forward(x)
            self.beside = torch.log10(hidden * 0).mean()
            return hidden

    attach()
    model = Beside(nn.ReLU())
    train(model, torch.randn(8, 4), loss=lambda output: output.sum() + model.beside)
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module) == ("log10", "")
    assert "of finite inputs" in said.message


def test_replays_take_no_more_than_their_share_of_the_time(attach, sidecar):
    attached = attach(SKIP)
    (watch,) = [one for one in attached.agent.crew.watches if type(one).__name__ == "Replaying"]
    model = Around(Root())
    optimizer = train(model, torch.randn(8, 4))
    watch.spent = 1e6
    train(model, torch.randn(8, 4), optimizer=optimizer)
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) == 2)
    first, second = [said for said in sidecar.of(wire.Finding) if said.kind == "NonFiniteGradient"]
    assert (first.op, second.op) == ("sqrt", None)
    assert "their share of the time" in second.evidence["replay"]["reason"]


def test_a_part_that_is_called_by_itself_keeps_its_name_in_the_model(attach, sidecar):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Around(Root())
            self.head = nn.Linear(1, 1)

    attach()
    model = Whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head(model.encoder(torch.randn(8, 4))).sum().backward()
    optimizer.step()
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.module) == ("sqrt", "encoder.part")
    assert "sqrt in encoder.part" in said.message


def test_a_bad_parameter_of_such_a_part_too(attach, sidecar):
    attach()
    model = nn.ModuleDict({"encoder": nn.Linear(4, 1)})
    model["encoder"].weight.data[0, 1] = NAN
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model["encoder"](torch.randn(8, 4)).square().sum().backward()
    optimizer.step()
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.parameter, said.module) == ("encoder.weight", "encoder")


def test_an_output_that_is_used_inside_as_well_hides_no_fault(attach, sidecar):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Linear(4, 4)

        def forward(self, x):
            hidden = self.stem(x)
            return {"hidden": hidden, "unused": torch.log(hidden * 0), "far": (hidden * 0).sqrt()}

    attach()
    train(Two(), torch.randn(8, 4), loss=lambda output: output["hidden"].sum() + output["far"].sum())
    said = told(sidecar)["NonFiniteGradient"]
    assert (said.op, said.evidence["replay"]["status"]) == ("sqrt", "ok")


def test_a_step_without_a_call_of_its_own_is_not_explained_by_an_earlier_one(attach, sidecar):
    attach(SKIP)
    train(Around(Root()), torch.randn(8, 4))
    parameter = nn.Parameter(torch.zeros(3))
    (parameter * 1).sqrt().sum().backward()
    torch.optim.SGD([parameter], lr=0.1).step()
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) == 2)
    first, second = [said for said in sidecar.of(wire.Finding) if said.kind == "NonFiniteGradient"]
    assert first.line == line("taken nowhere")
    assert (second.op, second.module) == (None, None)
    assert "no module call" in second.evidence["replay"]["reason"]
