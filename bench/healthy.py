"""
Five small healthy trainings with what makes healthy ones look odd: for runs that must be silent.

Each is a generator that takes one step when it is asked for the next. Mixed precision is bfloat16 for
models that would not need a scaler, and float16 with a GradScaler for the others.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

LR = 2e-3
WARM_UP = 100  # steps
HARDER = 800  # the step at which a curriculum's second stage begins


class Trainer:
    """An optimizer with what surrounds it: a scaler, a schedule, clipping; `zeros` are kept as gradients."""

    def __init__(  # noqa: PLR0913 - one keyword for each thing in which trainings differ
        self,
        parameters: Iterator[nn.Parameter],
        *,
        amp: torch.dtype | None,
        warm_up: bool,
        lr: float = LR,
        clip: float | None = None,
        zeros: bool = False,
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr)
        rise = (lambda step: min(1.0, (step + 1) / WARM_UP)) if warm_up else (lambda _step: 1.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rise)
        self.scaler = torch.amp.GradScaler("cpu", enabled=amp is torch.float16)
        self.amp, self.clip, self.zeros = amp, clip, zeros

    def cast(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of the forward pass."""
        return torch.autocast("cpu", self.amp) if self.amp else contextlib.nullcontext()

    def step(self, loss: torch.Tensor) -> None:
        """Take a step for a loss."""
        self.optimizer.zero_grad(set_to_none=not self.zeros)
        self.scaler.scale(loss).backward()
        if self.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()


class Transformer(nn.Module):
    """Predicts the next of 16 symbols; embedding and head are one matrix."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, width)
        block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits for each place."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=True))


def transformer(*, amp: bool, warm_up: bool) -> Iterator[None]:
    """Dropout, clipping, tied weights, and now and then a batch without any label."""
    model = Transformer()
    trainer = Trainer(model.parameters(), amp=torch.bfloat16 if amp else None, warm_up=warm_up, clip=1.0)
    for step in range(1 << 30):
        tokens = (torch.randint(16, (8, 1)) + torch.arange(13) * torch.randint(1, 3, (8, 1))) % 16
        labels = tokens[:, 1:].clone()
        if not (step + 1) % 500:
            labels[:] = -100
        with trainer.cast():
            logits = model(tokens[:, :-1])
        trainer.step(nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten()))
        yield


def cnn(*, amp: bool, warm_up: bool) -> Iterator[None]:
    """BatchNorm behind convolutions with a bias, evaluations in between, a harder stage half-way."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    trainer = Trainer(model.parameters(), amp=torch.float16 if amp else None, warm_up=warm_up)
    for step in range(1 << 30):
        labels = torch.randint(4, (16,))
        pictures = torch.randn(16, 1, 8, 8) * (0.5 if step < HARDER else 1.0)
        for index, label in enumerate(labels.tolist()):
            pictures[index, 0, 2 * label] += 1.5
        with trainer.cast():
            logits = model(pictures)
        trainer.step(nn.functional.cross_entropy(logits.float(), labels))
        if not (step + 1) % 200:
            model.eval()
            with torch.no_grad():
                model(pictures)
            model.train()
        yield


def gan(*, amp: bool, warm_up: bool) -> Iterator[None]:
    """Two networks against each other, each with an optimizer of its own."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    cast = torch.bfloat16 if amp else None
    makes, judges = (
        Trainer(model.parameters(), amp=cast, warm_up=warm_up, lr=1e-3) for model in (generator, critic)
    )
    loss = nn.functional.binary_cross_entropy_with_logits
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    while True:
        angle = 2 * math.pi * torch.rand(32, 1)
        real = torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(32, 2)
        with judges.cast():
            fake = generator(torch.randn(32, 4))
            on_real, on_fake = critic(real).float(), critic(fake.detach()).float()
        judges.step(loss(on_real, ones) + loss(on_fake, zeros))
        with makes.cast():
            verdict = critic(generator(torch.randn(32, 4))).float()
        makes.step(loss(verdict, ones))
        yield


class Adapted(nn.Module):
    """A frozen layer with low-rank factors beside it, the second of them zero at first."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both ways' sum."""
        return self.base(x) + 2 * self.lora_B(self.lora_A(x))


def lora(*, amp: bool, warm_up: bool) -> Iterator[None]:
    """Adapters in a frozen network, over four micro-batches a step."""
    body = [Adapted(nn.Linear(16, 16)) for _ in range(3)]
    head = nn.Linear(16, 4).requires_grad_(requires_grad=False)
    model = nn.Sequential(*(layer for each in body for layer in (each, nn.GELU())), head)
    trainer = Trainer(model.parameters(), amp=torch.float16 if amp else None, warm_up=warm_up)
    teacher = torch.randn(16, 4)
    while True:
        trainer.optimizer.zero_grad()
        for _ in range(4):
            x = torch.randn(16, 16)
            with trainer.cast():
                logits = model(x)
            loss = nn.functional.cross_entropy(logits.float(), (x @ teacher).argmax(1)) / 4
            trainer.scaler.scale(loss).backward()
        trainer.scaler.step(trainer.optimizer)
        trainer.scaler.update()
        trainer.schedule.step()
        yield


class Experts(nn.Module):
    """One of four experts for each token, by what it is; the last kind is rare."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(4)
        )
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        weights = self.gate(x).softmax(1)
        out = x.clone()
        for number, expert in enumerate(self.experts):
            chosen = kind == number
            if chosen.any():
                out[chosen] += (weights[chosen, number, None] * expert(x[chosen])).to(out.dtype)
        return self.head(out)


def moe(*, amp: bool, warm_up: bool) -> Iterator[None]:
    """Experts without a token for many steps; their gradients are None, or with a warm-up zero."""
    model = Experts()
    trainer = Trainer(
        model.parameters(), amp=torch.bfloat16 if amp else None, warm_up=warm_up, clip=1.0, zeros=warm_up
    )
    teacher = torch.randn(16, 4)
    for step in range(1 << 30):
        x = torch.randn(32, 16)
        kind = torch.randint(3, (32,))
        if not (step + 1) % 60:
            kind[:4] = 3
        with trainer.cast():
            logits = model(x, kind)
        trainer.step(nn.functional.cross_entropy(logits.float(), (x @ teacher).argmax(1)))
        yield


TRAININGS: dict[str, Callable[..., Iterator[None]]] = {
    "transformer": transformer,
    "cnn": cnn,
    "gan": gan,
    "lora": lora,
    "moe": moe,
}
