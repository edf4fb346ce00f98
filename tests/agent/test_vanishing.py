"""VanishingGradient in this process: what a graph's look tells apart, with real models."""

import pytest
import torch
from torch import nn

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.probes import ALL, settings

KIND = "VanishingGradient"
STEPS = int(ALL[KIND].DEFAULTS["steps"])
OBSERVE = (policy.Rule(severity="info"),)


def reached(heard, step):
    """Whether a step was told of; one message may find no room, the state is said again and again."""
    return any(said.step >= step for said in (*heard.of(wire.StepTaken), *heard.of(wire.RankState)))


@pytest.fixture
def watched(sidecar):
    """Train under a watch of this kind alone, and return what was found."""
    made = []

    def train(model, loss, steps=STEPS + 5, optimizer=torch.optim.Adam, lr=1e-3, **more):
        probes = settings.Settings({KIND: {**ALL[KIND].DEFAULTS, **more}})
        made.append(
            Attached(Environment(rank=0, directory=str(sidecar.folder), rules=OBSERVE, probes=probes))
        )
        rule = optimizer(model.parameters(), lr=lr)
        for step in range(steps):
            rule.zero_grad(set_to_none=False)
            loss(model, step).backward()
            rule.step()
        sidecar.wait(lambda heard: reached(heard, steps - 1))
        assert KIND not in made[-1].agent.host.unknown
        return sidecar.of(wire.Finding)

    yield train
    for attached in made:
        attached.detach()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Mlp(nn.Module):
    """Layers with a function between them; `body` first, then `head`."""

    def __init__(self, depth=3, between=torch.relu, width=16):
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
        self.head = nn.Linear(width, 4)
        self.between = between

    def forward(self, x):
        for layer in self.body:
            x = self.between(layer(x))
        return self.head(x)


def classified(model, _step, width=16):
    return nn.functional.cross_entropy(model(torch.randn(8, width)), torch.randint(4, (8,)))


def test_a_body_whose_units_are_dead_is_named_as_a_whole(watched):
    model = Mlp()
    with torch.no_grad():
        model.body[2].bias.fill_(-100.0)
    (found,) = watched(model, classified)
    assert (found.severity, found.module, found.step, found.first_step) == ("warning", "body", STEPS - 1, 0)
    assert "exactly zero" in found.message


def test_the_layer_before_dead_units_is_named_and_not_the_one_that_is_fed_with_zeros(watched):
    model = Mlp()
    with torch.no_grad():
        model.body[1].bias.fill_(-100.0)
        model.body[2].bias.fill_(1.0)
    (found,) = watched(model, classified)
    assert (found.module, found.evidence["others"]) == ("body.1", ["body.0"])


def test_a_rounding_operator_stops_what_is_before_it(watched):
    model = Mlp(depth=2, between=torch.round)
    (found,) = watched(model, classified)
    assert found.module == "body"


def test_saturated_layers_vanish_beside_the_rest(watched):
    model = Mlp(depth=14, between=torch.sigmoid)
    (found,) = watched(model, classified, lr=1e-5)
    assert found.module.startswith("body.")
    assert 0 < found.evidence["ratio"] < 1e-7


def test_adapters_of_which_both_factors_are_zero_never_learn(watched):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(16, 16).requires_grad_(requires_grad=False)
            self.lora_A, self.lora_B = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
            self.head = nn.Linear(16, 4)
            nn.init.zeros_(self.lora_A.weight)
            nn.init.zeros_(self.lora_B.weight)

        def forward(self, x):
            return self.head(self.base(x) + self.lora_B(self.lora_A(x)))

    (found,) = watched(Adapted(), classified)
    assert found.module == "lora_B"
    assert found.evidence["others"] == ["lora_A"]


class Branches(nn.Module):
    """A trunk, and branches that are used as `chosen` says."""

    def __init__(self, chosen):
        super().__init__()
        self.trunk = nn.Linear(16, 16)
        self.experts = nn.ModuleList(nn.Linear(16, 4) for _ in range(2))
        self.chosen = chosen

    def forward(self, x):
        return self.chosen(self.experts, torch.relu(self.trunk(x)))


HEALTHY = {
    "an-expert-that-is-never-called": lambda experts, h: experts[0](h),
    "an-expert-behind-a-closed-gate": lambda experts, h: experts[0](h) + 0.0 * experts[1](h),
    "parameters-added-with-zero": lambda experts, h: (
        experts[0](h) + 0.0 * sum(parameter.sum() for parameter in experts[1].parameters())
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_idle_branches_are_silent(watched, name):
    assert watched(Branches(HEALTHY[name]), classified, steps=3 * STEPS) == []


def test_a_closed_branch_is_said_when_it_stays_closed(watched):
    model = Branches(HEALTHY["an-expert-behind-a-closed-gate"])
    (found,) = watched(model, classified, idle=2.0 * STEPS, steps=3 * STEPS)
    assert (found.module, found.evidence["bypassed"], found.step) == ("experts.1", True, 2 * STEPS - 1)


def test_an_idle_expert_that_got_a_gradient_once_is_silent(watched):
    def now_and_then(model, step):
        model.chosen = lambda experts, h: experts[step == 3](h)
        return classified(model, step)

    assert watched(Branches(None), now_and_then, steps=3 * STEPS) == []


def test_a_term_that_the_loss_weighs_with_zero_is_silent(watched):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.main, self.aside = Mlp(), Mlp()

    def weighed(model, _step):
        x, y = torch.randn(8, 16), torch.randint(4, (8,))
        main, aside = (nn.functional.cross_entropy(each(x), y) for each in (model.main, model.aside))
        return main + 0.0 * aside

    assert watched(Heads(), weighed, steps=3 * STEPS) == []


def test_layers_before_an_output_that_is_zero_at_first_are_silent(watched):
    """As diffusion models begin: with a warm-up the inner gradients are far below the rest, and grow."""
    model = Mlp()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.body[2].weight)
    assert watched(model, classified, steps=3 * STEPS, lr=1e-8) == []


def test_biases_of_attention_keys_and_before_a_normalisation_are_silent(watched):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.key, self.query, self.value = (nn.Linear(16, 16) for _ in range(3))
            self.conv, self.norm = nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8)
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            x = self.norm(self.conv(x))
            scores = self.query(x) @ self.key(x).mT / 4
            return self.head((scores.softmax(-1) @ self.value(x)).mean(1))

    def attended(model, _step):
        return nn.functional.cross_entropy(model(torch.randn(8, 8, 16)), torch.randint(4, (8,)))

    assert watched(Block(), attended, steps=2 * STEPS) == []


def test_batches_without_labels_neither_count_nor_end_a_streak(watched):
    def sometimes(model, step):
        return classified(model, step) * float(step % 2)

    model = Mlp(depth=2, between=torch.round)
    (found,) = watched(model, sometimes, steps=3 * STEPS)
    assert found.step == 2 * STEPS - 1


def test_checkpointed_layers_are_looked_at_without_recomputing_them(watched):
    calls = []

    class Checkpointed(Mlp):
        def forward(self, x):
            inner = super().forward

            def counted(value):
                calls.append(1)
                return inner(value)

            return torch.utils.checkpoint.checkpoint(counted, x, use_reentrant=False)

    (found,) = watched(Checkpointed(depth=2, between=torch.round), classified)
    assert found.module == "body"
    assert len(calls) == 2 * (STEPS + 5)
