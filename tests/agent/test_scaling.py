"""Loss scaling in this process: real scalers, real optimizers, and what is said of them."""

import json

import pytest
import torch
from torch import nn

from stepwarden import policy
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment
from stepwarden.agent.watches.scaling import current_scale
from stepwarden.probes import settings

OBSERVE = (policy.Rule(severity="info"),)
KINDS = ("GradientScaleWrong", "ScalerStarved")
ONLY = settings.read(
    json.dumps({kind: {"enabled": False} for kind in settings.DEFAULTS if kind not in KINDS})
)


@pytest.fixture
def said():
    """Attach, and keep the findings as (kind, severity, step, fault)."""
    attached = Attached(Environment(rank=0, directory=None, rules=OBSERVE, probes=ONLY))
    found = []
    attached.agent.report = found.extend
    yield found
    off, unknown = attached.agent.off, attached.agent.host.unknown
    attached.detach()
    assert (off, unknown) == (False, {})


class Loop:
    """Some models, each with its optimizer, and one scaler."""

    def __init__(self, scale=2.0**16, models=1, make=torch.optim.SGD, **options):
        torch.manual_seed(0)
        self.models = [nn.Linear(4, 4) for _ in range(models)]
        self.optimizers = [make(model.parameters(), lr=0.01, **options) for model in self.models]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        self.model, self.optimizer = self.models[0], self.optimizers[0]

    def loss(self, model=None):
        return (model or self.model)(torch.randn(3, 4)).square().mean()

    def step(self, between=lambda _loop: None, backward=None, factor=1.0):
        self.optimizer.zero_grad()
        (backward or (lambda: self.scaler.scale(self.loss() * factor).backward()))()
        between(self)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def clip(loop, most=1.0):
    nn.utils.clip_grad_norm_(loop.model.parameters(), most)


def unscale_and_clip(loop):
    loop.scaler.unscale_(loop.optimizer)
    clip(loop)


def clip_by_hand(loop):
    norm = torch.stack([one.grad.norm() for one in loop.model.parameters()]).norm()
    for one in loop.model.parameters():
        one.grad /= norm


def faults(said):
    return [(one.severity, one.step, one.evidence["fault"]) for one in said]


@pytest.mark.parametrize("options", [{}, {"make": torch.optim.AdamW, "fused": True}], ids=["plain", "fused"])
@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda _loop: None, id="nothing"),
        pytest.param(unscale_and_clip, id="unscaled"),
        pytest.param(lambda loop: clip(loop, loop.scaler.get_scale()), id="limit-is-scaled-too"),
        pytest.param(lambda loop: clip(loop, float("inf")), id="only-measures"),
    ],
)
def test_healthy_loops_are_left_in_peace(said, between, options):
    loop = Loop(**options)
    for _ in range(12):
        loop.step(between)
    assert said == []
    assert current_scale() == 2.0**16


@pytest.mark.parametrize("options", [{}, {"make": torch.optim.AdamW, "fused": True}], ids=["plain", "fused"])
def test_clipping_before_unscale(said, options):
    loop = Loop(**options)
    for _ in range(2):
        loop.step(clip)
    assert faults(said) == [("warning", 0, "clipped")]
    assert (said[0].file, said[0].evidence["limit"]) == (__file__, 1.0)
    assert "1.52588e-05" in said[0].message


def test_clipping_by_hand_before_unscale_shows_in_the_norm(said):
    loop = Loop()
    for _ in range(10):
        loop.step(clip_by_hand)
    assert faults(said) == [("warning", 8, "tiny")]


def test_a_step_on_scaled_gradients(said):
    loop = Loop()
    loop.scaler.scale(loop.loss()).backward()
    loop.optimizer.step()
    assert faults(said) == [("critical", 0, "stepped")]


def test_gradients_added_behind_unscale(said):
    loop = Loop()
    loop.step(lambda _: (loop.scaler.unscale_(loop.optimizer), loop.scaler.scale(loop.loss()).backward()))
    assert faults(said) == [("critical", 0, "added")]


def test_a_loss_that_is_scaled_twice_though_divided_between(said):
    loop = Loop(scale=1024.0)
    loop.step(backward=lambda: loop.scaler.scale(loop.scaler.scale(loop.loss()) / 2).backward())
    assert faults(said) == [("critical", 0, "twice")]


def test_a_loss_that_was_unscaled_by_hand_may_be_scaled_again(said):
    loop = Loop(scale=1024.0)
    scaler = loop.scaler
    loop.step(backward=lambda: scaler.scale(scaler.scale(loop.loss()) / scaler.get_scale()).backward())
    assert said == []


def test_an_unscaled_loss_beside_a_scaled_one_and_alone(said):
    loop = Loop()
    loss, other = loop.loss(), loop.loss()
    loop.step(backward=lambda: (loop.scaler.scale(loss).backward(), other.backward()))
    loop.step()
    loop.step(backward=lambda: loop.loss().backward())
    assert faults(said) == [("warning", 0, "mixed"), ("warning", 2, "never")]


def test_micro_batches_add_up(said):
    loop = Loop()
    for batch in range(8):
        (loop.scaler.scale(loop.loss()) / 4).backward()
        if batch % 4 == 3:
            unscale_and_clip(loop)
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()
            loop.optimizer.zero_grad()
    assert said == []


def adversaries(loop, last):
    """One step of a GAN: the discriminator through the scaler, the generator by `last`."""
    (generator, critic), (slow, fast) = loop.models, loop.optimizers
    fast.zero_grad()
    fake = generator(torch.randn(3, 4))
    judged = critic(fake.detach()).mean()
    loop.scaler.scale(judged).backward()
    loop.scaler.step(fast)
    slow.zero_grad()
    loss = -critic(fake).mean()
    last(loop.scaler, loss, slow)
    loop.scaler.update()


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        pytest.param(lambda s, loss, o: (s.scale(loss).backward(), s.step(o)), None, id="both-scaled"),
        pytest.param(lambda _, loss, o: (loss.backward(), o.step()), None, id="one-without-a-scaler"),
        pytest.param(lambda s, loss, o: (s.scale(loss).backward(), o.step()), "stepped", id="not-unscaled"),
        pytest.param(lambda s, loss, o: (loss.backward(), s.step(o)), "never", id="not-scaled"),
    ],
)
def test_two_optimizers(said, last, fault):
    loop = Loop(models=2)
    for _ in range(3):
        adversaries(loop, last)
    assert {one for _, _, one in faults(said)} == ({fault} if fault else set())


def test_gradients_that_were_kept_and_go_on_in_a_second_pass_stay_scaled(said):
    loop = Loop()
    temperature = nn.Parameter(torch.ones(1))
    loop.optimizer.add_param_group({"params": [temperature]})

    def cached():
        x = torch.randn(3, 4)
        kept = loop.model(x).detach().requires_grad_()
        loss = (kept * temperature).square().mean()
        loop.scaler.scale(loss).backward()
        surrogate = (loop.model(x) * kept.grad).sum()
        surrogate.backward()

    for _ in range(3):
        loop.step(backward=cached)
    assert said == []


@pytest.mark.parametrize(("scale", "skips"), [(2.0**24, 16), (2.0**32, 23), (2.0**16, 8)])
def test_a_warm_up_is_healthy(said, scale, skips):
    loop = Loop(scale=scale)
    for step in range(skips + 3):
        loop.step(factor=float("inf") if step < skips else 1.0)
    assert said == []


def test_a_scaler_that_skips_for_good_starves_and_names_the_gradient(said):
    loop = Loop()
    for step in range(40):
        loop.step(factor=1.0 if step < 3 else float("nan"))
    assert [(one.kind, one.severity, one.step, one.module) for one in said] == [
        ("ScalerStarved", "warning", 3, None)
    ]
    assert said[0].parameter == "weight"
    assert said[0].evidence["nan"] == 16
    assert said[0].file == __file__


def test_a_scaler_made_anew_for_each_step_starves_without_a_small_scale(said):
    loop = Loop()
    for _ in range(25):
        loop.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        loop.step(factor=float("inf"))
    assert [(one.kind, one.evidence["skipped_in_a_row"]) for one in said] == [("ScalerStarved", 20)]


def test_what_has_recovered_is_said_again(said):
    loop = Loop()
    for step in range(60):
        loop.step(factor=1.0 if step in {0, 30} else float("inf"))
        loop.scaler.update(2.0**16)
    assert [(one.kind, one.step) for one in said] == [("ScalerStarved", 1), ("ScalerStarved", 2)]


def test_a_loss_counts_without_its_scale_though_it_was_divided_behind_scaling():
    attached = Attached(Environment(rank=0, directory=None, rules=OBSERVE, probes=ONLY))
    loop = Loop()
    losses = [loop.loss(), loop.loss()]
    for scaled in [loop.scaler.scale(loss) / 4 for loss in losses]:
        scaled.backward()
    total = attached.agent.losses.total
    attached.detach()
    assert total == pytest.approx(sum(loss.item() for loss in losses) / 4)


class Own(torch.amp.GradScaler):
    """A scaler that doesn't ask its parent, as sharded ones do."""

    def scale(self, outputs):
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(outputs.device)
        return outputs * self._scale


def test_scalers_that_others_made_are_followed(said):
    loop = Loop()
    loop.scaler = Own("cpu")
    loop.step(clip)
    assert faults(said) == [("warning", 0, "clipped")]


def test_a_scaler_that_is_switched_off_is_none(said):
    loop = Loop()
    loop.scaler = torch.amp.GradScaler("cpu", enabled=False)
    loop.step(clip)
    assert said == []
    assert current_scale() is None


def test_all_is_taken_off_again():
    names = ("scale", "unscale_", "step", "update", "get_scale", "__init__")
    before = [getattr(torch.amp.GradScaler, name) for name in names]
    clipping = (nn.utils.clip_grad_norm_, nn.utils.clip_grad.clip_grad_norm_, nn.Module.zero_grad)
    attached = Attached(Environment(rank=0, directory=None, rules=OBSERVE, probes=ONLY))
    assert nn.utils.clip_grad_norm_ is not clipping[0]
    attached.detach()
    assert [getattr(torch.amp.GradScaler, name) for name in names] == before
    assert (nn.utils.clip_grad_norm_, nn.utils.clip_grad.clip_grad_norm_, nn.Module.zero_grad) == clipping
