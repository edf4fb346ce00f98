"""`stepwarden replay BUNDLE`: what a run saved of a bad step, run again on this machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from stepwarden.cli.failure import UsageError

DESCRIPTION = """\
Run a bad step again from a bundle that `stepwarden run` saved (in REPORT/replays; the finding's
evidence says its path), on the CPU, and print who is to blame: module, operator, line, magnitudes.

A bundle is a pickle with the text of the training script in it: reading it RUNS CODE.
Only use bundles that you trust."""

EPILOG = """\
exit codes    0 the same operator is to blame; 1 another one, or none; 2 the bundle can't be read"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("bundle", metavar="BUNDLE", help="the file")


def act(parsed: argparse.Namespace) -> int:
    """Replay a bundle in a process of its own, whose `__main__` it may take. Raises `UsageError`."""
    path = Path(parsed.bundle)
    if not path.is_file():
        message = f"there is no bundle {path}"
        raise UsageError(message)
    if find_spec("torch") is None:
        message = "a replay needs torch: pip install torch"
        raise UsageError(message)
    command = [sys.executable, "-m", "stepwarden.agent.replay", str(path)]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - a module of this package
