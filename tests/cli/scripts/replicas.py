"""Many small data-parallel trainings in one process: each has a model, an optimizer, and steps of its own."""

import os
from contextlib import nullcontext

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

distributed.init_process_group("gloo")
RANK, RANKS = int(os.environ["RANK"]), distributed.get_world_size()
IDLE = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    torch.manual_seed(1 + RANK)
    return model


def wrapped(**options):
    return DistributedDataParallel(net(), **options)


def train(  # noqa: PLR0913 - one keyword for each thing that differs between trainings
    model, steps=6, *, micro=1, sync=True, forward=None, before=None, batch=None, lr=0.01
):
    """Train; `sync`: the last micro-batch reduces, as the others do not."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(micro):
            x = batch(step) if batch else torch.randn(16, 8)
            alone = micro > 1 and not (sync and part == micro - 1)
            with model.no_sync() if alone else nullcontext():
                ((forward or model)(x).square().mean() / micro).backward()
        if before:
            before(model, step)
        optimizer.step()


def scaled(by):
    return lambda model, _step: [parameter.grad.mul_(by) for parameter in model.parameters()]


def averaged(until):
    def average(model, step):
        for parameter in model.parameters() if step < until else ():
            distributed.all_reduce(parameter.grad)
            parameter.grad /= RANKS

    return average


def frozen_then_not():
    model = net()
    model[0].weight.requires_grad = False
    outer = DistributedDataParallel(model)
    model[0].weight.requires_grad = True
    return outer


def changed_on_rank_0():
    outer = wrapped()
    if RANK == 0:
        nn.init.normal_(outer.module[0].weight)
    return outer


class Head(nn.Module):
    """A loss with a weight of its own, which nobody wrapped."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale


class Two(nn.Module):
    """A wrapped model and the loss beside it, as far as an optimizer sees them."""

    def __init__(self, *, seeded):
        super().__init__()
        self.outer, self.head = wrapped(), Head()
        if not seeded:
            nn.init.normal_(self.head.scale)

    def forward(self, x):
        return self.head(self.outer(x))


def same_seed():
    drawn = torch.Generator().manual_seed(3)
    return lambda _step: torch.randn(16, 8, generator=drawn)


def by_loader():
    """The classic: every rank shuffles with the same seed."""
    torch.manual_seed(5)
    loader = DataLoader(TensorDataset(torch.randn(128, 8)), 16, shuffle=True)
    batches = iter(loader)
    return lambda _step: next(batches)[0]


FIXED = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))

HEALTHY = {
    "plain": lambda: train(wrapped()),
    "accumulation": lambda: train(wrapped(), micro=3),
    "bucket_view": lambda: train(wrapped(gradient_as_bucket_view=True), micro=2),
    "static_graph": lambda: train(wrapped(static_graph=True)),
    "clipping": lambda: train(wrapped(), before=lambda m, _: nn.utils.clip_grad_norm_(m.parameters(), 0.01)),
    "fixed_batch": lambda: train(wrapped(), batch=lambda _: FIXED),
    "constant_input": lambda: train(wrapped(), batch=lambda step: torch.full((16, 8), step + 1.0)),
    "by_hand": lambda: train(net(), before=averaged(99)),
    "ensemble": lambda: train(net()),
    "shards_beside": lambda: train(Two(seeded=False)),
}
FAULTY = {
    "never_synchronised": lambda: train(wrapped(), micro=2, sync=False),
    "bypass": lambda: (outer := wrapped()) and train(outer, forward=outer.module),
    "unfrozen": lambda: train(frozen_then_not()),
    "changed_after": lambda: train(wrapped(), before=scaled(1 + 0.1 * RANK)),
    "rank_0_alone": lambda: train(changed_on_rank_0()),
    "rates": lambda: train(wrapped(), lr=0.01 * (1 + (RANK == 1))),
    "summed": lambda: train(wrapped(), before=scaled(RANKS)),
    "averaged_twice": lambda: train(wrapped(), before=scaled(1 / RANKS)),
    "same_seed": lambda: train(wrapped(), batch=same_seed()),
    "same_loader": lambda: train(wrapped(), batch=by_loader()),
    "loss_not_wrapped": lambda: train(Two(seeded=True)),
    "by_hand_then_not": lambda: train(net(), steps=9, before=averaged(6)),
}
for number, (name, run) in enumerate((HEALTHY | FAULTY).items(), 1):
    for _ in range(10):  # findings are told apart by their step, which is the most that any optimizer made
        IDLE.param_groups[0]["params"][0].grad = torch.ones(2)
        IDLE.step()
    if RANK == 0:
        print(f"training {number} {name}", flush=True)  # noqa: T201 - read by the test
    run()
distributed.barrier()
distributed.destroy_process_group()
