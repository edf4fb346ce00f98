"""The largest magnitude in tensors: one number each that also tells NaN and Inf, read all at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWER = (torch.float16, torch.bfloat16)
NOTHING = 0.0  # of a tensor that has no values, or none that could be bad


@torch.no_grad()
def measure(tensor: Tensor) -> Tensor | float:
    """Return the largest magnitude, still on its device: NaN where a value is NaN."""
    if tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return NOTHING
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return NOTHING
    dtype = torch.float32 if tensor.dtype in LOWER else None
    norm: Tensor = torch.linalg.vector_norm(tensor.detach(), math.inf, dtype=dtype)
    return norm


@torch.no_grad()
def signed(tensor: Tensor) -> float:
    """Return the largest magnitude at once: -inf where all that is infinite is negative."""
    found = float(measure(tensor))
    if math.isinf(found) and not tensor.is_complex() and not bool((tensor.detach() == math.inf).any()):
        return -math.inf
    return found


def read(measured: Sequence[Tensor | float]) -> list[float]:
    """Return the numbers of what was measured. Waits for the devices, once for each."""
    found: list[float] = [0.0] * len(measured)
    groups: dict[Any, list[int]] = {}
    for index, one in enumerate(measured):
        if isinstance(one, Tensor):
            groups.setdefault(one.device, []).append(index)
        else:
            found[index] = one
    for members in groups.values():
        stacked = torch.stack([torch.as_tensor(measured[index]).double() for index in members])
        for index, value in zip(members, stacked.tolist(), strict=False):
            found[index] = value
    return found
