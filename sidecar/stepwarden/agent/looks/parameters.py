"""
Whether parameters and buffers are finite: at the first step, every few steps, and when a step was bad.

Masks of -Inf are kept in buffers, and are healthy: Inf in a buffer counts only where that buffer was
finite before or is a running statistic, NaN always.
"""

import math
import weakref
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stepwarden.agent.looks import names
from stepwarden.agent.looks.gradients import counts, dense, norms, readable
from stepwarden.probes import NonFinite


class Parameters:
    """The parameters of one optimizer, and the buffers of the modules that own them."""

    def __init__(self, optimizer: Optimizer) -> None:
        """Find the owners of an optimizer's parameters."""
        self.modules = [weakref.ref(module) for module in names.owners(trained(optimizer))]
        self.finite_buffers: set[str] = set()
        self.called: Mapping[int, str] = {}

    def owners(self, optimizer: Optimizer) -> list[nn.Module]:
        """Return the root modules, looked for again where they are gone."""
        living = [module for reference in self.modules if (module := reference()) is not None]
        if not living:
            living = names.owners(trained(optimizer))
            self.modules = [weakref.ref(module) for module in living]
        return living

    def names(self, optimizer: Optimizer) -> Mapping[int, str]:
        """Return the names of the roots' parameters, by id; looked for again where one is missing."""
        if not self.called or any(id(parameter) not in self.called for parameter in trained(optimizer)):
            self.modules.clear()
            self.called = names.names(self.owners(optimizer))
        return self.called

    def check(self, optimizer: Optimizer) -> NonFinite | None:
        """Return what is not finite. Waits for the device."""
        parameters = trained(optimizer)
        buffers = [
            (name, buffer)
            for name, buffer in names.buffers(self.owners(optimizer))
            if buffer.layout is torch.strided and buffer.numel() and readable(buffer)
        ]
        values = [dense(parameter.detach()) for parameter in parameters]
        tensors = [*values, *(dense(buffer.detach()) for _, buffer in buffers)]
        kept = [index for index, tensor in enumerate(tensors) if tensor.numel() and readable(tensor)]
        if not kept:
            return None
        suspects = self.suspects(tensors, kept)
        known = {name for index, (name, _) in enumerate(buffers, len(parameters)) if index not in suspects}
        bad = {index: counts(tensors[index]) for index in suspects}
        called = self.names(optimizer) if bad else {}
        title = {index: called.get(id(parameter)) for index, parameter in enumerate(parameters)}
        title |= {index: name for index, (name, _) in enumerate(buffers, len(parameters))}
        worst = [
            (index, nan, inf)
            for index, (nan, inf) in bad.items()
            if nan or (inf and (index < len(parameters) or self.finite_once(title[index])))
        ]
        self.finite_buffers |= known
        if not worst:
            return None
        index, nan, inf = worst[0]
        return NonFinite(
            name=title[index], tensors=len(worst), of=len(kept), nan=nan, inf=inf, size=tensors[index].numel()
        )

    def finite_once(self, name: str | None) -> bool:
        """Whether Inf in a buffer is news: it was finite before, or is a running statistic of a norm."""
        return name in self.finite_buffers or (name or "").endswith(("running_mean", "running_var"))

    @staticmethod
    def suspects(tensors: Sequence[Tensor], kept: Sequence[int]) -> list[int]:
        """Return the indices of tensors whose norm is not finite."""
        with torch.no_grad():
            found = norms([tensors[index] for index in kept]).tolist()
        return [index for index, norm in zip(kept, found, strict=True) if not math.isfinite(norm)]


def trained(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters that an optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
