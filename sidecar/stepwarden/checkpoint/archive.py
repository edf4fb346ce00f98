"""Reads what torch.save writes: an archive of one pickle and the raw bytes of each storage."""

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from stepwarden.checkpoint import pickled
from stepwarden.checkpoint.tensors import Poisoned, Stored, Torn

ZIP = b"PK\x03\x04"
LOCAL_HEADER = 30  # bytes of a zip entry's own header, before its name
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8}


class Window(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: IO[bytes], begin: int, length: int) -> None:
        """Look at `length` bytes from `begin`."""
        super().__init__()
        self.file, self.begin, self.length, self.at = file, begin, length, 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that one can go to and fro in it."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.length}[whence]
        self.at = max(0, origin + offset)
        return self.at

    def readinto(self, buffer: Any) -> int:
        """Read from here on, up to the end of the window."""
        self.file.seek(self.begin + self.at)
        data = self.file.read(max(0, min(len(buffer), self.length - self.at)))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def tensors(path: Path, begin: int = 0, length: int | None = None) -> list[Stored]:
    """Return the floating tensors of a file, or of a part of it. Raises `Torn`."""
    length = path.stat().st_size - begin if length is None else length
    with path.open("rb") as file:
        file.seek(begin)
        head = file.read(len(ZIP))
        if head != ZIP:
            return legacy(path)
        try:
            return list(read(path, file, begin, length))
        except (zipfile.BadZipFile, ValueError, KeyError, struct.error, IndexError) as error:
            message = f"{path.name} is torn: {error}"
            raise Torn(message) from error


def read(path: Path, file: IO[bytes], begin: int, length: int) -> Iterator[Stored]:
    """Yield the floating tensors of an archive. Raises `ValueError` and more where it is broken."""
    with zipfile.ZipFile(io.BufferedReader(Window(file, begin, length))) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        main = next((name for name in entries if name.endswith("/data.pkl")), None)
        if main is None:
            message = "it has no data.pkl"
            raise ValueError(message)
        for entry in entries.values():
            if entry.header_offset + entry.compress_size > length:
                message = f"{entry.filename} goes beyond its end"
                raise ValueError(message)
        with archive.open(main) as data:
            found = pickled.load(data)
    root = main.rpartition("/")[0]
    for name, tensor in pickled.walk(found):
        if not tensor.dtype:
            continue
        entry = entries[f"{root}/data/{tensor.storage.key}"]
        yield stored(path, name, tensor, entry, begin + data_offset(file, begin, entry))


def data_offset(file: IO[bytes], begin: int, entry: zipfile.ZipInfo) -> int:
    """Return where an entry's bytes begin: behind its own header, whose lengths are its own as well."""
    file.seek(begin + entry.header_offset)
    header = file.read(LOCAL_HEADER)
    names, extra = struct.unpack("<HH", header[26:30])
    return int(entry.header_offset) + LOCAL_HEADER + int(names) + int(extra)


def stored(path: Path, name: str, tensor: pickled.Rebuilt, entry: zipfile.ZipInfo, offset: int) -> Stored:
    """Say where a tensor's numbers are. Raises `ValueError` where its storage is too small for it."""
    width = SIZES[tensor.dtype]
    last = sum((size - 1) * step for size, step in zip(tensor.size, tensor.stride, strict=True))
    count = 0 if 0 in tensor.size else last + 1
    if (tensor.offset + count) * width > entry.file_size or entry.compress_type != zipfile.ZIP_STORED:
        message = f"the storage of {name} is too small"
        raise ValueError(message)
    return Stored(
        name=name,
        path=path,
        offset=offset + tensor.offset * width,
        count=count,
        dtype=tensor.dtype,
        size=tensor.size,
        stride=tensor.stride,
    )


def legacy(path: Path) -> list[Stored]:
    """
    Read a file of torch before 1.6, which has no archive: by torch itself, as a whole and in memory.

    `weights_only` runs nothing of it. Raises `Torn` and `Poisoned`.
    """
    import torch  # noqa: PLC0415 - only for files that old

    try:
        left = [torch.load(path, map_location="cpu", weights_only=True)]
    except Exception as error:
        message = f"{path.name} is torn, or no file of torch: {type(error).__name__}: {error!s:.100}"
        raise Torn(message) from error
    while left:
        each = left.pop()
        if isinstance(each, (Mapping, list, tuple)):
            left += each.values() if isinstance(each, Mapping) else each
        elif isinstance(each, torch.Tensor) and not each.isfinite().all():
            message = f"{path.name} holds NaN or Inf"
            raise Poisoned(message)
    return []
