"""
A rank that ends, with what Python takes down behind it: an object that waits there for a file.

    last.py FOLDER WAY

FOLDER gets `exits` from an exit function, `kept` from a file that is never closed, `waits` and `waited` from
the object.
"""

import atexit
import os
import sys
import time
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


communicator, file = Communicator(), (FOLDER / "kept").open("w")
file.write("a line")
if WAY == "raises":
    raise ValueError(f"of torch {torch.__version__}")  # noqa: EM102, TRY003 - as users write
sys.exit(int(WAY))
