"""Lightning: it calls the optimizer with a closure, clips within it, and accumulates by itself."""

import pytest
import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

STEPS, BAD = 6, 4
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning has much advice


class Module(lightning.LightningModule):
    """One model, one or two optimizers (then by hand)."""

    def __init__(self, bad, *, by_hand=False):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
        self.bad, self.numbers = bad, []
        self.automatic_optimization = not by_hand

    def loss(self, x):
        x = x * float("nan") if self.global_step == self.bad else x
        return (self.net(x) - x).square().mean()

    def training_step(self, x, _):
        if self.automatic_optimization:
            return self.loss(x)
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(x))
        optimizer.step()
        return None

    def validation_step(self, x, _):
        self.log("seen", self.net(x).sum())

    def on_train_batch_end(self, *_):
        self.numbers.append(sum(p.detach().double().abs().sum().item() for p in self.parameters()))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        if not self.automatic_optimization:
            return optimizer
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit(bad, *, by_hand=False, **options):
    lightning.seed_everything(0, verbose=False)
    module = Module(bad, by_hand=by_hand)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    data = torch.randn(4 * STEPS * 2, 6)
    trainer.fit(module, DataLoader(data, batch_size=4), DataLoader(data[:8], batch_size=4))
    return module.numbers


def automatic(bad):
    return fit(bad, gradient_clip_val=1.0)


def accumulating(bad):
    return fit(bad, accumulate_grad_batches=2)


def bfloat16(bad):
    return fit(bad, precision="bf16-mixed")


def by_hand(bad):
    return fit(bad, by_hand=True)


LOOPS = [automatic, accumulating, bfloat16, by_hand]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_healthy_training_is_left_in_peace(watching, loop):
    watching.healthy(loop, STEPS)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_bad_batch_is_found_before_its_update(watching, loop):
    watching.poisoned(loop, BAD)
