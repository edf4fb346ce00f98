"""
Ranks that wait for ever because another one failed, forked from one process.

    stuck.py FOLDER

`reducing` waits in an all-reduce, `making` in the rendezvous of a new group; `computing` waits nowhere near
torch until the file FOLDER/done is there. Each writes FOLDER/NAME.here when it is there, and its stderr.
"""

import ctypes
import json
import os
import socket
import sys
import time
from pathlib import Path

import torch
from torch import distributed

from stepwarden import policy
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

FOLDER = Path(sys.argv[1])
NAMES = ("reducing", "making", "computing")


def here(name):
    (FOLDER / f"{name}.here").touch()


def reducing(store, own):
    here("reducing")
    try:
        distributed.all_reduce(torch.ones(1))
    finally:
        own.sendall(b"still open")
        store.set("said", own.recv(16))


def making(store, own):
    del store, own
    here("making")
    distributed.new_group([0, 1, 2])


def computing(store, own):
    del own
    here("computing")
    while not (FOLDER / "done").exists():
        time.sleep(0.05)
    (FOLDER / "said").write_bytes(store.get("said"))


def begin(rank, port):
    """Become a rank with a group, and with a connection of its own."""
    os.dup2(os.open(FOLDER / f"{NAMES[rank]}.err", os.O_WRONLY | os.O_CREAT, 0o644), 2)
    observe = (policy.Rule(severity="info"),)
    kept = Attached(Environment(rank=rank, ranks=3, directory=str(FOLDER), rules=observe))
    store = distributed.TCPStore("127.0.0.1", port, is_master=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=3)
    echo, own = socket.create_server(("127.0.0.1", 0)), socket.socket()
    own.connect(echo.getsockname())
    other, _ = echo.accept()
    other.sendall(b"still open")
    distributed.all_reduce(torch.ones(1))
    return kept, store, own, other


master = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(master))  # its thread is not in the ranks: none may delete it
pids = {}
for number, name in enumerate(NAMES):
    pid = os.fork()
    if pid == 0:
        attached, client, mine, theirs = begin(number, master.port)
        globals()[name](client, mine)
        sys.exit(0)
    pids[pid] = name
codes = {}
while len(codes) < len(pids):
    pid, status = os.wait()
    codes[pids[pid]] = os.waitstatus_to_exitcode(status)
    (FOLDER / f"{pids[pid]}.code").write_text(json.dumps(codes[pids[pid]]))
