"""`stepwarden checkpoint DIR`: which checkpoints there are, and which one a training may go on from."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stepwarden.cli.failure import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepwarden.checkpoint.newest import Judged

NONE = 1  # exit code where no checkpoint is good

DESCRIPTION = """\
Read the checkpoints in a folder, newest first, up to the first that is whole and finite: the one that a
restart goes on from. Understood are files of torch.save (.pt, .pth, .ckpt, .bin) and safetensors, folders
of the Hugging Face Trainer, and folders of torch.distributed.checkpoint. Nothing in them is run."""

EPILOG = """\
good          all of it can be read, and every floating tensor is finite
torn          half written, or a part of it is missing
poisoned      it holds NaN, or Inf where none is meant

exit codes    0 if there is a good one, 1 if there is none, 2 if the folder can't be read"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", metavar="DIR", type=Path, help="a folder of checkpoints")
    parser.add_argument("--all", action="store_true", help="read the older ones too")


def act(parsed: argparse.Namespace) -> int:
    """Judge and print. Raises `UsageError` where the folder, or torch, isn't there."""
    try:
        from stepwarden.checkpoint.newest import judged  # noqa: PLC0415 - imports torch
    except ModuleNotFoundError as error:
        message = f"reading a checkpoint needs {error.name}: run this where your training runs"
        raise UsageError(message) from error
    found = []
    try:
        for each in judged(parsed.directory, every=parsed.all):
            found.append(each)
            print("\n".join(table([each], header=len(found) == 1)), flush=True)  # noqa: T201 - the answer
    except OSError as error:
        message = f"can't read {parsed.directory}: {error.strerror}"
        raise UsageError(message) from error
    good = next((each for each in found if each.word == "good"), None)
    print(f"newest good checkpoint: {good.candidate.path if good else 'none'}")  # noqa: T201 - the answer
    return 0 if good else NONE


def table(found: "Iterable[Judged]", *, header: bool) -> list[str]:
    """Put what was judged as lines."""
    head = [f"{'WRITTEN':<20}{'STATE':<10}{'CHECKPOINT'}  (WHY)"] if header else []
    return head + [line(each) for each in found]


def line(judged: "Judged") -> str:
    """Put one checkpoint as a line."""
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(judged.candidate.time))
    return f"{written:<20}{judged.word:<10}{judged.candidate.path}  ({judged.reason})"
