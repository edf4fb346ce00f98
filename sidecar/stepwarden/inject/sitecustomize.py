"""
Brings the agent into a rank: Python imports this at its start when the folder is on PYTHONPATH.

It acts in the ranks that were asked for and in no helper process of theirs, and then loads the
sitecustomize that it stands before. Whatever goes wrong here, the user's program runs.
"""

import importlib.machinery
import importlib.util
import os
import sys


def is_rank(variables: "os._Environ[str]", arguments: "list[str]") -> bool:
    """Whether this process is a rank that is to be watched."""
    asked = "STEPWARDEN_DIR" in variables or "STEPWARDEN_POLICY" in variables
    rank = ("LOCAL_RANK" in variables and "RANK" in variables) or "STEPWARDEN_RANK" in variables
    own = str(os.getpid())
    return (
        asked
        and rank
        and variables.get("STEPWARDEN_ATTACHED", own) == own
        and "--multiprocessing-fork" not in arguments
    )


def is_launcher(variables: "os._Environ[str]") -> bool:
    """Whether this process may be a torchrun whose ranks are to be watched."""
    rank = "RANK" in variables or "LOCAL_RANK" in variables or "STEPWARDEN_RANK" in variables
    return "STEPWARDEN_DIR" in variables and not rank


def start_launcher() -> None:
    """Let a torchrun tell how its ranks end."""
    try:
        if sys.version_info >= (3, 10):  # noqa: UP036 - the user's Python may be older than this package's
            from stepwarden.agent.launcher import start  # noqa: PLC0415 - only where it may be needed

            start()
    except Exception:  # noqa: BLE001, S110 - a guest never breaks its host; ranks are told of by their sidecar
        pass


def start() -> None:
    """Let the agent wait for torch."""
    try:
        if sys.version_info < (3, 10):  # noqa: UP036 - the user's Python may be older than this package's
            sys.stderr.write("stepwarden: needs Python 3.10 or newer: this rank is not watched\n")
            return
        from stepwarden.agent import start as wait_for_torch  # noqa: PLC0415 - only in a rank

        wait_for_torch()
    except Exception as error:  # noqa: BLE001 - a guest never breaks its host
        if sys.stderr is not None:
            sys.stderr.write("stepwarden: can't start, this rank is not watched: %s\n" % error)  # noqa: UP031


def load_next() -> None:
    """Load the sitecustomize that would have been found without this one; its errors are its own."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 - pathlib is slow to start with
    others = [place for place in sys.path if os.path.realpath(place or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if is_rank(os.environ, getattr(sys, "orig_argv", [])):
    start()
elif is_launcher(os.environ):
    start_launcher()
load_next()
