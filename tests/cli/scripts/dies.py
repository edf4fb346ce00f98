"""Two ranks of a small training; rank 1 ends at a step in the way that it is asked to."""

import ctypes
import os
import resource
import signal
import sys
import time

import torch
import torch.distributed as dist

HOW, STEP = sys.argv[1], 5


def die():
    if HOW == "raise":
        try:
            {}["first"]
        except KeyError as error:
            message = "second"
            raise ValueError(message) from error  # dies: raise
    if HOW == "sys.exit":
        sys.exit(3)
    if HOW == "os._exit":
        os._exit(4)
    if HOW == "SystemExit":
        raise SystemExit(6)
    if HOW == "KeyboardInterrupt":
        raise KeyboardInterrupt
    if HOW == "segfault":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)  # dies: segfault
    if HOW == "abort":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()  # dies: abort
    if HOW.startswith("SIGKILL"):
        killed()


def killed():
    if HOW == "SIGKILL at work":
        end = time.monotonic() + 3  # a rank tells once a second what it is at
        any(time.monotonic() > end for _ in iter(int, 1))  # dies: SIGKILL at work
    os.kill(os.getpid(), signal.SIGKILL)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(400):
    if rank == 1 and step == STEP:
        die()
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
