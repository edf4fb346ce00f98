"""Reads a folder of torch.distributed.checkpoint: its .metadata says in which file each tensor is."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepwarden.checkpoint import archive, pickled
from stepwarden.checkpoint.find import METADATA
from stepwarden.checkpoint.tensors import Stored, Torn


def tensors(folder: Path) -> Iterator[Stored]:
    """
    Yield the floating tensors of all shards, one shard's part after the other. Raises `Torn`.

    Parts that a transform has changed (compression) are only looked for, not into.
    """
    for name, info in parts(folder):
        path = folder / str(info.get("relative_path"))
        begin, length = int(info.get("offset") or 0), int(info.get("length") or 0)
        if info.get("transform_descriptors") or not is_archive(path, begin):
            continue
        for tensor in archive.tensors(path, begin, length):
            yield replace(tensor, name=name)


def parts(folder: Path) -> list[tuple[str, pickled.Inert]]:
    """Return each part's tensor and where it is. Raises `Torn` where one is missing or too short."""
    try:
        with (folder / METADATA).open("rb") as file:
            told = pickled.load(file)
    except FileNotFoundError as error:
        message = f"{folder.name} has no {METADATA}: it was never finished"
        raise Torn(message) from error
    except ValueError as error:
        message = f"{folder.name}/{METADATA} is torn: {error}"
        raise Torn(message) from error
    where = told.get("storage_data") if isinstance(told, pickled.Inert) else None
    if not isinstance(where, Mapping):
        message = f"{folder.name}/{METADATA} says of no file"
        raise Torn(message)
    found = [(name_of(index), info) for index, info in where.items()]
    for name, info in found:
        present(folder, name, info)
    return found


def name_of(index: Any) -> str:
    """Return a tensor's dotted name."""
    return str(index.get("fqn")) if isinstance(index, pickled.Inert) else str(index)


def present(folder: Path, name: str, info: Any) -> None:
    """Raise `Torn` unless the file that a part is in reaches to the part's end."""
    if not isinstance(info, pickled.Inert):
        message = f"{folder.name}/{METADATA} says of {name} what can't be read"
        raise Torn(message)
    path = folder / str(info.get("relative_path"))
    end = int(info.get("offset") or 0) + int(info.get("length") or 0)
    try:
        size = path.stat().st_size
    except OSError as error:
        message = f"{folder.name} lacks {path.name}, which holds {name}"
        raise Torn(message) from error
    if size < end:
        message = f"{folder.name}/{path.name} is torn: it has {size} bytes of {end}, and lacks {name}"
        raise Torn(message)


def is_archive(path: Path, begin: int) -> bool:
    """Whether a part is what torch.save writes; one of bytes alone isn't."""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(len(archive.ZIP)) == archive.ZIP
