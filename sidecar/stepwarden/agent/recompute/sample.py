"""Samples of tensors: a row of a matrix each, taken without waiting for the tensor's device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WIDTH = 256  # values of a row
ROWS = 64  # of a matrix
PLAIN = frozenset({Tensor, torch.nn.Parameter})
HALF = frozenset({torch.float16, torch.bfloat16})


def plain(value: Any) -> Tensor | None:
    """Return a tensor whose values lie on this rank's device and can be sampled; None for all else."""
    if not isinstance(value, Tensor):
        return None
    tensor: Tensor = getattr(value, "_local_tensor", value)
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    return tensor if tensor.numel() and dense(tensor) else None


def dense(tensor: Tensor) -> bool:
    """Whether its values lie in a row in memory, each once."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return last + 1 == tensor.numel()


def storage(tensor: Tensor) -> int:
    """Return what views of one memory have in common."""
    found: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - the only name of a storage that is cheap
    return found


def evenly(tensor: Tensor) -> Tensor:
    """
    Return at most `WIDTH` values of a dense tensor, evenly spread in memory.

    The distance is odd, so that in rows of an even length all columns are met.
    """
    values = tensor.detach()
    if values.is_complex():
        values = torch.view_as_real(values)
    distance = max(1, values.numel() // WIDTH) | 1
    count = min(WIDTH, (values.numel() - 1) // distance + 1)
    return values.as_strided((count,), (distance,), values.storage_offset())


class Rows:
    """Rows of samples on one device, that of the first tensor."""

    def __init__(self) -> None:
        """Begin with none."""
        self.matrices: list[Tensor] = []
        self.count = 0

    def add(self, tensor: Tensor) -> int | None:
        """Sample a tensor; return its row, or None where it lies on another device."""
        if self.matrices and self.matrices[0].device != tensor.device:
            return None
        if self.count == ROWS * len(self.matrices):
            self.matrices.append(torch.zeros(ROWS, WIDTH, dtype=torch.float32, device=tensor.device))
        values = evenly(tensor)
        self.matrices[-1][self.count % ROWS, : len(values)].copy_(values)
        self.count += 1
        return self.count - 1

    def matrix(self, rows: list[int]) -> Tensor:
        """Return some rows, as a matrix of its own."""
        whole = torch.cat(self.matrices)
        index = torch.tensor(rows)
        if whole.device.type != "cpu":
            index = index.pin_memory().to(whole.device, non_blocking=True)
        return whole[index]
