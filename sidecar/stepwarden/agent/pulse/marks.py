"""
What excuses a long pause, read off a stack: evaluating, checkpointing, compiling, loading, sleeping, locked.

Code that was seen on the stack at the boundary of a step is where the training itself lives: its names
say nothing.
"""

import functools
import re
import sysconfig
from collections.abc import Collection, Sequence
from pathlib import PurePath
from types import CodeType

from stepwarden.agent.pulse import stack
from stepwarden.pulse import Phase

STDLIB = sysconfig.get_path("stdlib")
EVALUATING = re.compile(r"_*(eval|valid|test)", re.IGNORECASE)
CHECKPOINTING = re.compile(r"(^|_)(save|checkpoint|ckpt)", re.IGNORECASE)
SAVES = ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/")
COMPILES = (
    "/torch/_dynamo/convert_frame.py",
    "/torch/_inductor/compile_fx.py",
    "/torch/_inductor/async_compile.py",
    "/torch/utils/cpp_extension.py",
    "/triton/compiler/",
    "/triton/backends/",
    "/triton/runtime/autotuner.py",
)
"""Files that are on the stack while something is compiled, and not while compiled code runs."""
LOADS = "/torch/utils/data/"
WAITS = frozenset(
    f"{STDLIB}/{name}"
    for name in (
        *("threading.py", "queue.py", "selectors.py", "socket.py", "ssl.py", "subprocess.py"),
        *("multiprocessing/connection.py", "multiprocessing/synchronize.py", "multiprocessing/queues.py"),
        *("multiprocessing/popen_fork.py", "concurrent/futures/_base.py", "asyncio/base_events.py"),
    )
)
"""Files of the standard library that wait for somebody else."""
INSIDE = ("forward", "backward")  # phases in which nobody saves


@functools.lru_cache(4096)
def of_file(file: str) -> frozenset[str]:
    """Return the marks that a file's place alone gives."""
    found = set()
    if any(part in file for part in SAVES):
        found.add("checkpointing")
    if any(part in file for part in COMPILES):
        found.add("compiling")
    if LOADS in file:
        found.add("loading")
    return frozenset(found)


@functools.lru_cache(4096)
def of_names(file: str, function: str) -> frozenset[str]:
    """Return the marks that the names of a user's or a trainer's code give."""
    if "/torch/" in file or (file.startswith(STDLIB) and "site-packages" not in file) or stack.is_ours(file):
        return frozenset()
    found = set()
    if EVALUATING.match(function) or EVALUATING.match(PurePath(file).name):
        found.add("evaluating")
    if CHECKPOINTING.search(function):
        found.add("checkpointing")
    return frozenset(found)


def of_end(files: Sequence[str], phase: Phase) -> frozenset[str]:
    """Return the marks of what the innermost calls do; `files` are theirs, the innermost last."""
    if not files:
        return frozenset()
    if stack.is_users(files[-1]):  # it waits in something that is written in C
        return frozenset({"sleeping"} if phase == "data" else ())
    waiting = files[-1] in WAITS
    caller = next((file for file in reversed(files) if file not in WAITS), "")
    return frozenset({"locked"} if waiting and LOADS not in caller and not stack.is_ours(caller) else ())


def marks(
    codes: Sequence[CodeType], phase: Phase, training: Collection[CodeType], *, evaluating: bool
) -> tuple[str, ...]:
    """
    Return what excuses a pause of a rank whose calls run these codes, the innermost last.

    `training` are the codes that the training itself runs in, `evaluating` whether its model is in
    evaluation mode.
    """
    found = {"evaluating"} if evaluating else set()
    for code in codes:
        found |= of_file(code.co_filename)
        if code not in training:
            found |= of_names(code.co_filename, code.co_name)
    if phase in INSIDE and not any("checkpointing" in of_file(code.co_filename) for code in codes):
        found.discard("checkpointing")
    found |= of_end([code.co_filename for code in codes], phase)
    return tuple(sorted(found))
