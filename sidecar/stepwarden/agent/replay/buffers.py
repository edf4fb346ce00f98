"""
The buffers that a forward pass begins from, where it changes them.

Only those are copied that are seen to change, and no large ones. A normalisation's running statistics
need no copy: in training its output doesn't depend on them, and else they don't change.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

LARGEST = 1 << 20  # values: a larger buffer isn't copied
PERIOD = 100  # calls between two looks for new buffers


class Buffers:
    """The buffers of one root module."""

    def __init__(self) -> None:
        """Begin with the first call."""
        self.calls = 0
        self.fresh = True  # whether the last call was one of the few that are looked at more closely
        self.tensors: list[Tensor] = []
        self.versions: list[int] = []
        self.changing: set[int] = set()

    def take(self, module: nn.Module) -> list[tuple[Tensor, int, Tensor | None]]:
        """Return the buffers as they are now: each with its version, and a copy where it changes."""
        self.fresh = self.calls % PERIOD == 0
        if self.fresh:
            found = candidates(module)
            if [id(tensor) for tensor in found] != [id(tensor) for tensor in self.tensors]:
                self.tensors, self.changing, self.versions = found, set(range(len(found))), []
        self.calls += 1
        versions = [tensor._version for tensor in self.tensors]  # noqa: SLF001 - the only count of changes
        if self.versions:
            seen = {
                index
                for index, (old, new) in enumerate(zip(self.versions, versions, strict=False))
                if old != new
            }
            self.changing = seen if len(self.changing) == len(versions) else self.changing | seen
        self.versions = versions
        return [
            (tensor, version, self.copied(index, tensor))
            for index, (tensor, version) in enumerate(zip(self.tensors, versions, strict=False))
        ]

    def copied(self, index: int, tensor: Tensor) -> Tensor | None:
        """Copy a buffer that changes."""
        if index not in self.changing or tensor.numel() > LARGEST or type(tensor) is not Tensor:
            return None
        return tensor.detach().clone()


def candidates(module: nn.Module) -> list[Tensor]:
    """Return the buffers that a forward pass may depend on and change."""
    found: dict[int, Any] = {}
    for child in module.modules():
        if not isinstance(child, _NormBase):
            found |= {id(buffer): buffer for buffer in child._buffers.values() if buffer is not None}  # noqa: SLF001 - as torch names it
    return [buffer for buffer in found.values() if not buffer.is_meta]
