"""Trains, and saves in one of the ways in which a program can be asked to: argument 1 says which, 2 where."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import stepwarden

how, folder = sys.argv[1], Path(sys.argv[2])
torch.set_num_threads(1)
layer = torch.nn.Linear(2, 1)


def save(name):
    torch.save(layer.state_dict(), folder / "new")
    (folder / "new").replace(folder / name)


def plain(look):
    """The loop of a person who writes their own."""
    model = layer
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(layer)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = -1

    def now():
        if dist.get_rank() == 0:
            save(f"step-{step}.pt")
        dist.barrier()
        (folder / f"rank-{dist.get_rank()}").write_text(str(step))

    if how == "function":
        stepwarden.on_save(now)
    for step in range(100_000):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if look():
            save(f"step-{step}.pt")
            Path(os.environ["STEPWARDEN_SAVE_FILE"]).unlink(missing_ok=True)  # it is done
        time.sleep(0.02)
        if (folder / "end").exists():
            return


def file():
    return Path(os.environ["STEPWARDEN_SAVE_FILE"]).exists()


def signalled():
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    return lambda: asked.pop() if asked else 0


def huggingface():
    import transformers  # noqa: PLC0415 - takes seconds, for this one way

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer

        def forward(self, x):
            time.sleep(0.02)
            return {"loss": self.inner(x).sum()}

    args = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=2000,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"x": torch.ones(2)} for _ in range(64)]
    transformers.Trainer(model=Model(), args=args, train_dataset=data).train()


def lightning():
    import pytorch_lightning as pl  # noqa: PLC0415 - takes seconds, for this one way

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = layer

        def training_step(self, batch, _):
            time.sleep(0.02)
            return self.inner(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader([torch.ones(2)] * 4000)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    pl.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Module(), loader)


match how:
    case "function":
        plain(lambda: False)
    case "file":
        plain(file)
    case "signal":
        plain(signalled())
    case "huggingface":
        huggingface()
    case "lightning":
        lightning()
