"""Digests by which ranks compare what they hold: of numbers, names, a batch. Waits for no device."""

from __future__ import annotations

import math
from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SAMPLE = 64  # elements of one tensor
TENSORS = 4  # of one call
DEPTH = 3  # of nested lists and mappings that are looked into
VARIED = 8  # different values that a batch must hold, or it may be the same by chance
TINY = 1e-38  # stands for a norm of zero


def of_text(texts: Iterable[str]) -> str:
    """Return a digest of some strings."""
    return blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


def of_numbers(numbers: Sequence[float]) -> str:
    """Return a digest of numbers, to the bit."""
    return blake2b(array("d", numbers).tobytes(), digest_size=8).hexdigest()


def whole(norms: Sequence[float]) -> float:
    """Return the norm over all."""
    return math.hypot(*norms)


def sketch(norms: Sequence[float]) -> float:
    """Return the sum of the logarithms of norms: a relative difference of any of them shows in it."""
    try:
        return sum(map(math.log, norms))
    except ValueError:  # a norm of zero
        return sum(math.log(max(norm, TINY)) for norm in norms)


def of_batch(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return a digest of a call's tensors on the host; "" where there is none, or too little in them."""
    digest, values = blake2b(digest_size=8), set()
    for tensor in tensors((args, kwargs), DEPTH):
        stride = max(1, tensor.numel() // SAMPLE)
        sample = tensor.detach().reshape(-1)[::stride][:SAMPLE].tolist()
        values.update(sample)
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(array("d", sample).tobytes())
    return digest.hexdigest() if len(values) >= VARIED else ""


def tensors(thing: Any, depth: int) -> Iterator[Tensor]:
    """Yield the first few tensors on the host that stand in nested lists, tuples and mappings."""
    found: list[Tensor] = []
    collect(thing, depth, found)
    yield from found


def collect(thing: Any, depth: int, found: list[Tensor]) -> None:
    """Put the tensors of a structure into a list, until there are enough."""
    if len(found) >= TENSORS:
        return
    if isinstance(thing, Tensor):
        if plain(thing) and thing.device.type == "cpu" and thing.numel() > 1 and thing.is_contiguous():
            found.append(thing)
    elif depth and isinstance(thing, dict):
        for item in thing.values():
            collect(item, depth - 1, found)
    elif depth and isinstance(thing, list | tuple):
        for item in thing:
            collect(item, depth - 1, found)


def plain(tensor: Tensor) -> bool:
    """Whether a tensor is a usual one, whose real values can be listed."""
    usual = type(tensor) in {Tensor, torch.nn.Parameter} and tensor.layout is torch.strided
    return usual and not tensor.is_complex()
