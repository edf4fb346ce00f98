"""
Ranks of which each ends in another way: forked from one process, so that torch is imported once.

    ends.py FOLDER

Writes to FOLDER/NAME.err what a rank says on stderr, and to FOLDER/codes.json how each process ended.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

from stepwarden import policy
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

# ruff: noqa: EM101, EM102, TRY003, TRY301, SIM105, ARG001 - written as users write
FOLDER = Path(sys.argv[1])


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError("no such sample")  # in the worker


def raised():
    batch = [torch.ones(2, 3), "secret"]
    secret = torch.full((4,), 8765.25, dtype=torch.float64)
    raise ValueError(f"boom of {len(batch)} and {secret.ndim}")  # raised


def chained():
    try:
        raised()
    except ValueError as error:
        raise RuntimeError("outer") from error  # chained


def lost_peer():
    try:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:1")
    except RuntimeError as error:
        raise TypeError("while reducing") from error


def gathered():
    """Lose a peer where torch's excepthook is around, and be killed as soon as the traceback is out."""
    init = {"init_method": f"file://{FOLDER}/store", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **init)
    threading.Thread(target=kill_once_told, daemon=True).start()
    lost_peer()


def kill_once_told():
    while "while reducing" not in (FOLDER / "gathered.err").read_text():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def hook():
    def bad(gradient):
        raise ArithmeticError("in the hook")  # in the hook

    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(bad)
    y.sum().backward()


def worker():
    list(torch.utils.data.DataLoader(Samples(), num_workers=1))


def thread():
    one = threading.Thread(target=raised, name="prefetch")
    one.start()
    one.join()


def caught():
    try:
        sys.exit(3)
    except SystemExit:
        pass


def left_in_finally():
    try:
        sys.exit("no data")  # left
    finally:
        torch.ones(1).sum()


def children():
    if os.fork() == 0:
        os._exit(9)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 9
    if os.fork() == 0:
        ctypes.string_at(0)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV


WAYS = {
    "raised": raised,
    "chained": chained,
    "lost_peer": lost_peer,
    "gathered": gathered,
    "hook": hook,
    "worker": worker,
    "thread": thread,
    "caught": caught,
    "left_in_finally": left_in_finally,
    "left": lambda: sys.exit(3),  # left by a call
    "left_as_at_a_terminal": lambda: exit(5),  # noqa: PLR1722 - as users do  # left by the builtin
    "os_exit": lambda: os._exit(7),  # left at once
    "os_exit_0": lambda: os._exit(0),
    "children": children,
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupted": lambda: signal.raise_signal(signal.SIGINT),
}


def begin(rank, name):
    """Become a rank, and take a step."""
    err = os.open(FOLDER / f"{name}.err", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(err, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(FOLDER / f"{name}.json")
    observe = (policy.Rule(severity="info"),)
    attached = Attached(Environment(rank=rank, ranks=2, directory=str(FOLDER), rules=observe))
    model = nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return attached


torch.optim.SGD([torch.zeros(1)], lr=0.1)  # the first one imports the compiler, which takes seconds
pids = {}
for number, way in enumerate(WAYS):
    pid = os.fork()
    if pid == 0:
        kept = begin(number, way)
        WAYS[way]()
        sys.exit(0)
    pids[pid] = way
codes = {}
while len(codes) < len(pids):
    pid, status = os.wait()
    codes[pids[pid]] = os.waitstatus_to_exitcode(status)
(FOLDER / "codes.json").write_text(json.dumps({way: codes[way] for way in WAYS}))
