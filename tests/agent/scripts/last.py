"""
A rank that ends, with what Python takes down behind it: an object that waits there for a file.

    last.py FOLDER WAY

FOLDER gets `exits` from an exit function, `kept` and `kept_by_c` from files that are never closed,
`waits` and `waited` from the object. WAY is an exit code, or how it fails: it `raises`, it `freezes` what the
collector knows before, or it leaves a `full` pipe.
"""

import atexit
import ctypes
import gc
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER, WAY = Path(sys.argv[1]), sys.argv[2]
atexit.register((FOLDER / "exits").write_text, "run")  # before torch, and so behind what torch registers

import torch  # noqa: E402 - as above


class Communicator:
    """One whose destructor waits for a peer, as NCCL's may."""

    exists, sleep, create = os.path.exists, time.sleep, Path.touch  # modules are gone at the end

    def __init__(self):
        self.waits, self.waited, self.go = FOLDER / "waits", FOLDER / "waited", str(FOLDER / "go")

    def __del__(self):
        Communicator.create(self.waits)
        while not Communicator.exists(self.go):
            Communicator.sleep(0.01)
        Communicator.create(self.waited)


def fill():
    """Return a full pipe's ends, and a file to which more is to be written."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(65536))
    os.set_blocking(writer, True)
    file = os.fdopen(writer, "w")
    file.write("more")
    return reader, file


communicator, file = Communicator(), (FOLDER / "kept").open("w")
file.write("a line")
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.fputs(b"a line", ctypes.c_void_p(libc.fopen(os.fsencode(FOLDER / "kept_by_c"), b"w")))
pipe = fill() if WAY == "full" else None
if WAY == "freezes":
    gc.freeze()
if not WAY.isdigit():
    raise ValueError(f"of torch {torch.__version__}")  # noqa: EM102, TRY003 - as users write
sys.exit(int(WAY))
