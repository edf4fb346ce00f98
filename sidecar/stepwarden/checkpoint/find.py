"""Where a folder has checkpoints, newest first: files, and folders that are one checkpoint as a whole."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["file", "folder", "distributed"]

SUFFIXES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors"})
METADATA = ".metadata"  # of torch.distributed.checkpoint, written last
SHARD = ".distcp"
NUMBERED = re.compile(r"(?:checkpoint|ckpt|step|epoch|iter|global_step)[-_=.]?\d+", re.IGNORECASE)
DEEPEST = 5  # folders below the given one
MOST = 10_000  # candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One checkpoint: a file; a folder of files that belong together; one of torch.distributed.checkpoint."""

    path: Path
    kind: Kind
    time: float  # when it was last written, in seconds since the epoch


def candidates(directory: Path) -> list[Candidate]:
    """Return the checkpoints below a folder, newest first; of one moment, the highest number first."""
    found = {candidate.path.resolve(): candidate for candidate in within(directory, 0)}
    return sorted(found.values(), key=lambda each: (each.time, natural(each.path.name)), reverse=True)[:MOST]


def within(folder: Path, depth: int) -> Iterator[Candidate]:
    """Yield the checkpoints in a folder. One that can't be read, or has just gone, holds none."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.name.startswith(".") or entry.name.endswith((".tmp", ".temp")):
            continue
        if not entry.is_dir():
            if path.suffix in SUFFIXES and (written := last_written([path])):
                yield Candidate(path=path, kind="file", time=written)
        elif (kind := kind_of(path)) and (written := last_written(files(path))):
            yield Candidate(path=path, kind=kind, time=written)
        elif not kind and depth < DEEPEST:
            yield from within(path, depth + 1)


def kind_of(folder: Path) -> Kind | None:
    """Say whether a folder is one checkpoint, and which; None where it may hold some."""
    names = os.listdir(folder) if os.access(folder, os.R_OK | os.X_OK) else []  # noqa: PTH208 - names alone
    if METADATA in names or any(name.endswith(SHARD) for name in names):
        return "distributed"
    holds = any(Path(name).suffix in SUFFIXES or (folder / name / METADATA).exists() for name in names)
    return "folder" if holds and NUMBERED.search(folder.name) else None


def files(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def last_written(paths: list[Path]) -> float | None:
    """Return when the last of some files was written; None where there is none."""
    try:
        return max((path.stat().st_mtime for path in paths), default=None)
    except OSError:  # the training has just taken one away: this checkpoint is on its way out
        return None


def natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts `step-9` before `step-10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
