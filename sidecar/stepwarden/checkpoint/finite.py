"""
Whether a tensor on disk is finite. Reads at most some megabytes of it at a time.

NaN is never meant. An infinity is, at times: a best score that was never reached, alone in its
tensor, and the -Inf of an attention mask, whose other numbers are zero.
"""

from collections.abc import Iterable

import torch

from stepwarden.checkpoint.tensors import Poisoned, Stored, Torn

CHUNK = 16 * 1024 * 1024  # bytes


def check(tensors: Iterable[Stored]) -> int:
    """Return how many tensors were read, all of them finite. Raises `Poisoned` and `Torn`."""
    count = 0
    for tensor in tensors:
        count += 1
        if problem := judge(tensor):
            message = f"{tensor.path.name} holds {problem} in {tensor.name}"
            raise Poisoned(message)
    return count


def judge(tensor: Stored) -> str:
    """Return what a tensor holds that it should not: NaN, Inf, or nothing."""
    if not tensor.count:
        return ""
    infinite = others = False
    for chunk in chunks(tensor):
        real = torch.view_as_real(chunk) if chunk.is_complex() else chunk
        if real.isfinite().all():
            others = others or bool(real.any())
            continue
        if real.isnan().any():
            return "NaN"
        infinite = True
        finite = real[real.isfinite()]
        others = others or bool(finite.any()) or bool(real.isposinf().any())
    alone = tensor.count == 1
    return "Inf" if infinite and others and not alone else ""


def chunks(tensor: Stored) -> Iterable[torch.Tensor]:
    """Yield the numbers of a tensor, those between them (of a view) left out. Raises `Torn`."""
    dtype = getattr(torch, tensor.dtype)
    width = dtype.itemsize
    step = max(1, CHUNK // width)
    gaps = tensor.count != torch.Size(tensor.size).numel()
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        for begin in range(0, tensor.count, tensor.count if gaps else step):
            count = tensor.count if gaps else min(step, tensor.count - begin)
            data = bytearray(file.read(count * width))
            if len(data) < count * width:
                message = f"{tensor.path.name} is torn: it ends within {tensor.name}"
                raise Torn(message)
            flat = torch.frombuffer(data, dtype=dtype)
            yield flat.as_strided(tensor.size, tensor.stride).flatten() if gaps else flat
