"""ModalityImbalance in this process: which modules are encoders that share a loss."""

import pytest
import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import ALL, settings

KIND = "ModalityImbalance"
OBSERVE = (policy.Rule(severity="info"),)


def reached(heard, step):
    """Whether a step was told of; one message may find no room, the state is said again and again."""
    return any(said.step >= step for said in (*heard.of(wire.StepTaken), *heard.of(wire.RankState)))


@pytest.fixture
def watched(sidecar):
    """Train under a watch of this kind alone, and return what was found."""
    made = []

    def train(model, loss, steps=12, lr=1e-4):
        probes = settings.Settings({KIND: ALL[KIND].DEFAULTS})
        place = Environment(rank=0, directory=str(sidecar.folder), rules=OBSERVE, probes=probes)
        made.append(Attached(place))
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(parameters, lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
        sidecar.wait(lambda heard: reached(heard, steps - 1))
        assert KIND not in made[-1].agent.host.unknown
        return sidecar.of(wire.Finding)

    yield train
    for attached in made:
        attached.detach()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Encoder(nn.Module):
    """Two layers beside a bypass; what they put out is multiplied by `scale`."""

    def __init__(self, scale=1.0, width=8):
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(8, width), nn.Linear(width, 8), scale

    def forward(self, x):
        return x + self.scale * self.second(torch.tanh(self.first(x)))


class Pair(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.image, self.text = Encoder(), Encoder(scale)


def contrasted(model):
    logits = model.image(torch.randn(16, 8)) @ model.text(torch.randn(16, 8)).T
    return nn.functional.cross_entropy(logits, torch.arange(16))


def test_the_starved_encoder_is_named_at_the_fifth_step(watched):
    (found,) = watched(Pair(1e-5), contrasted)
    assert (found.module, found.severity, found.step, found.first_step) == ("text", "warning", 4, 0)
    assert "the gradient norm of image is" in found.message
    assert found.evidence["dominant"] == "image"


def test_encoders_in_a_dictionary_below_a_wrapper_are_found(watched):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.ModuleDict({"image": Encoder(), "text": Encoder(1e-5)})

    def fused(model):
        return (model.model["image"](torch.randn(16, 8)) * model.model["text"](torch.randn(16, 8))).sum()

    (found,) = watched(Outer(), fused)
    assert found.module == "model.text"


def reconstructed(model):
    """An encoder and a decoder."""
    x = torch.randn(16, 8)
    return ((model.image(model.text(x)) - x) ** 2).mean()


def of_two_terms(model):
    """As an actor and a critic have."""
    policy_term = model.text(torch.randn(16, 8)).mean()
    value_term = ((model.image(torch.randn(16, 8)) - 100.0) ** 2).mean()
    return policy_term + 0.5 * value_term


@pytest.mark.parametrize("loss", [reconstructed, of_two_terms])
def test_what_shares_no_term_or_follows_on_each_other_is_silent(watched, loss):
    assert watched(Pair(1e-6), loss) == []


def test_encoders_in_proportion_are_silent(watched):
    assert watched(Pair(0.1), contrasted) == []


def test_a_locked_encoder_is_silent(watched):
    model = Pair(1e-5)
    model.text.requires_grad_(requires_grad=False)
    assert watched(model, contrasted) == []


def test_a_gate_that_opens_is_silent(watched):
    class Gated(Pair):
        def __init__(self):
            super().__init__(1.0)
            self.gate = nn.Parameter(torch.zeros(()))

    def late(model):
        text = torch.randn(16, 8)
        logits = model.image(torch.randn(16, 8)) @ (text + torch.tanh(model.gate) * model.text(text)).T
        return nn.functional.cross_entropy(logits, torch.arange(16))

    assert watched(Gated(), late, steps=40) == []


def test_adapters_are_left_alone(watched):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = Encoder(), nn.Module()
            self.text.lora_A, self.text.lora_B = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def adapted(model):
        text = 1.0 + 1e-6 * model.text.lora_B(model.text.lora_A(torch.randn(16, 8)))
        return nn.functional.cross_entropy(model.image(torch.randn(16, 8)) @ text.T, torch.arange(16))

    assert watched(Adapted(), adapted) == []
