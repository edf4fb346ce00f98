"""Reads a .safetensors file: a header of JSON, then the numbers. See huggingface/safetensors, "Format"."""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stepwarden.checkpoint.tensors import Stored, Torn

LONGEST = 100_000_000  # bytes of a header, as the format allows
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def tensors(path: Path) -> list[Stored]:
    """Return the floating tensors of a file. Raises `Torn`."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(int(length), LONGEST)))
        return list(read(path, header, 8 + int(length), size))
    except (struct.error, ValueError, KeyError, TypeError) as error:
        message = f"{path.name} is torn: {error}"
        raise Torn(message) from error


def read(path: Path, header: Mapping[str, Any], begin: int, size: int) -> Iterator[Stored]:
    """Yield the tensors that a header speaks of. Raises `ValueError` where the file ends before."""
    for name, told in header.items():
        if name == "__metadata__":
            continue
        first, last = map(int, told["data_offsets"])
        if begin + last > size:
            message = f"{name} goes beyond its end"
            raise ValueError(message)
        shape = tuple(map(int, told["shape"]))
        if dtype := DTYPES.get(told["dtype"]):
            count = math.prod(shape)
            yield Stored(
                name=name,
                path=path,
                offset=begin + first,
                count=count,
                dtype=dtype,
                size=shape,
                stride=dense(shape),
            )


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
