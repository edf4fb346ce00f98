"""
Reading gradients: one fused L2 norm per device and type, and a closer look only when that is bad.

Only this rank's own shard of a distributed tensor is read; nothing here waits for a device.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

LOWER = frozenset({torch.float16, torch.bfloat16, torch.float32})  # norms of these are taken in float32
COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


def collect(optimizer: Optimizer) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters that have a gradient on this rank, and those gradients, dense and local."""
    parameters, gradients = [], []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if type(gradient) is not Tensor or gradient.layout is not torch.strided:
                gradient = dense(gradient)
            if gradient.numel() and readable(gradient):
                parameters.append(parameter)
                gradients.append(gradient)
    return parameters, gradients


def readable(tensor: Tensor) -> bool:
    """Whether a tensor has values that can be NaN or Inf."""
    return not tensor.is_meta and (tensor.is_floating_point() or tensor.is_complex())


def dense(tensor: Any) -> Tensor:
    """Return the values of a distributed or sparse tensor that lie on this rank, without a collective."""
    local: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if local.layout is torch.sparse_coo:
        return local._values()  # noqa: SLF001 - `values` wants a coalesced tensor, and that costs a sort
    if local.layout in COMPRESSED:
        return local.values()
    return local if local.layout is torch.strided else local.to_dense()


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of each of some tensors (at least one), as a vector on the first one's device."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(index)
    order: list[Tensor | None] = [None] * len(tensors)
    for (_, dtype), members in groups.items():
        found = fused([tensors[index] for index in members], dtype)
        for index, norm in zip(members, found, strict=True):
            order[index] = norm
    whole = [norm for norm in order if norm is not None]
    if len(groups) > 1:
        whole = [norm.to(whole[0].device, torch.float32, non_blocking=True) for norm in whole]
    return torch.stack(whole)


def fused(tensors: list[Tensor], dtype: torch.dtype) -> Iterable[Tensor]:
    """Return the norms of tensors of one device and type."""
    wanted = torch.float32 if dtype in LOWER else None
    return torch._foreach_norm(tensors, 2, dtype=wanted)  # noqa: SLF001 - the only fused norm that torch has


def counts(tensor: Tensor) -> tuple[int, int]:
    """Count NaN and Inf in a tensor. Waits for its device."""
    if torch.isfinite(tensor).all():  # an L2 norm of finite values can overflow
        return 0, 0
    return int(torch.isnan(tensor).sum()), int(torch.isinf(tensor).sum())
