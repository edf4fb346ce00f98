"""
A small DDP training in which one rank meets a fault at a step: `FAULT`, `FAULT_RANK`, `FAULT_STEP`.

When the fault begins it writes the time into `FAULT_BEGAN`: all that is measured counts from there.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

NAME = os.environ.get("FAULT", "")
RANK = int(os.environ["RANK"])
AT = int(os.environ.get("FAULT_STEP", "-1")) if int(os.environ.get("FAULT_RANK", "0")) == RANK else -1
STEPS, PAUSE = int(os.environ.get("STEPS", "60")), float(os.environ.get("STEP_SECONDS", "0.1"))


def begins():
    began = Path(os.environ["FAULT_BEGAN"])
    new = began.with_suffix(".new")
    new.write_text(str(REAL()))
    new.replace(began)  # who is killed meanwhile leaves no half of it


REAL = time.time
if NAME == "clock" and AT >= 0:
    time.time = lambda: REAL() + 3600.0


class Samples(Dataset):
    def __init__(self, broken):
        self.broken = broken

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.broken:
            begins()
            raise ValueError(f"sample {index} is torn")
        return torch.ones(8)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.now = False

    def forward(self, x):
        if self.now and NAME == "sleep":
            begins()
            time.sleep(1000)
        if self.now and NAME == "straggle":
            time.sleep(0.3)
        return self.linear(x)


def chained():
    try:
        {}["learning_rate"]
    except KeyError as error:
        raise RuntimeError("the configuration is not complete") from error


def in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0, name="prefetch")
    thread.start()
    thread.join()


def within_a_step(out):
    def broken(gradient):
        begins()
        raise ValueError("a hook of the backward pass")

    if NAME == "hook":
        out.register_hook(broken)


def caught():
    """Leave a collective out on one rank, as a caught exception does: nothing matches from here on."""
    begins()
    while True:
        dist.barrier()


def greedy():
    hoard = []
    while True:
        hoard.append(bytearray(b"x") * (64 << 20))
        begins()  # anew, as what counts is the last that it got


WAYS = {
    "raise": chained,
    "thread": in_a_thread,
    "worker": lambda: list(DataLoader(Samples(broken=True), num_workers=1)),
    "sys_exit": lambda: sys.exit(3),
    "os_exit": lambda: os._exit(5),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "oom": greedy,
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sigstop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "clock": chained,
    "unmatched": caught,
    "timeout": lambda: time.sleep(60),
}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layer = Layer()
    group = dist.new_group(timeout=timedelta(seconds=6)) if NAME == "timeout" else None
    model = DistributedDataParallel(layer, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        layer.now = step == AT or (NAME == "straggle" and 0 <= AT <= step)
        if step == AT and NAME not in {"hook", "worker", "unmatched", "sleep"}:
            begins()
        if step == AT and NAME in WAYS:
            WAYS[NAME]()
        out = model(torch.ones(4, 8))
        if step == AT:
            within_a_step(out)
        out.pow(2).mean().backward()
        optimizer.step()
        Path(os.environ["FAULT_BEGAN"]).with_name(f"step-{RANK}").write_text(str(step))
        time.sleep(PAUSE)
    print(f"rank {RANK} is done", flush=True)
    dist.destroy_process_group()


main()
