"""Whether a checkpoint can be read to its end: all its files are there, and none is half written."""

import json
from collections.abc import Iterator
from pathlib import Path

from stepwarden.checkpoint import archive, distributed, safetensors
from stepwarden.checkpoint.find import METADATA, SUFFIXES, Candidate, files
from stepwarden.checkpoint.tensors import Stored, Torn

TRAINER_STATE = "trainer_state.json"  # of the Hugging Face Trainer, which writes it last
INDEX = ".index.json"  # of weights that are split into several files


def tensors(candidate: Candidate) -> Iterator[Stored]:
    """Yield the floating tensors of a checkpoint. Raises `Torn` where it is not whole."""
    try:
        if candidate.kind == "file":
            yield from of_file(candidate.path)
        elif candidate.kind == "distributed":
            yield from distributed.tensors(candidate.path)
        else:
            yield from of_folder(candidate.path)
    except OSError as error:
        message = f"can't read {error.filename or candidate.path}: {error.strerror}"
        raise Torn(message) from error


def of_file(path: Path) -> list[Stored]:
    """Return the tensors of one file."""
    if path.stat().st_size == 0:
        message = f"{path.name} is empty"
        raise Torn(message)
    return safetensors.tensors(path) if path.suffix == ".safetensors" else archive.tensors(path)


def of_folder(folder: Path) -> Iterator[Stored]:
    """Yield the tensors of a folder whose files belong together."""
    index(folder)
    if folder.name.startswith("checkpoint-") and not (folder / TRAINER_STATE).exists():
        named = any((folder / name).exists() for name in ("config.json", "training_args.bin"))
        if named:
            message = f"{folder.name} has no {TRAINER_STATE}: it was never finished"
            raise Torn(message)
    shards = {path.parent for path in folder.rglob(METADATA)}
    for shard in sorted(shards):
        yield from distributed.tensors(shard)
    for path in files(folder):
        if path.suffix in SUFFIXES and path.parent not in shards:
            yield from of_file(path)


def index(folder: Path) -> None:
    """Raise `Torn` where a file that an index speaks of is missing."""
    for path in sorted(folder.glob(f"*{INDEX}")):
        try:
            named = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            message = f"{folder.name}/{path.name} is torn: {error}"
            raise Torn(message) from error
        if missing := sorted(name for name in named if not (folder / name).exists()):
            message = f"{folder.name} lacks {missing[0]}, which {path.name} speaks of"
            raise Torn(message)
