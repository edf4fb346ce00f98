"""
A few elements of each of many parameters, read by one operator: what moved, when and by how much.

The views are made once. A parameter whose memory was moved, or given back, is seen by its address
before a view is read.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ELEMENTS = 16  # of each parameter, spread over it
PARAMETERS = 16  # at most, spread over the model
PICTURES = 4  # dimensions of what may be in channels-last order
PLAIN = (Tensor, nn.Parameter)  # what a subclass does with `as_strided` isn't known


def suits(parameter: Tensor) -> bool:
    """Whether a parameter's elements lie in memory one behind the other, and can be compared."""
    return (
        type(parameter) in PLAIN
        and parameter.layout is torch.strided
        and parameter.is_floating_point()
        and not parameter.is_meta
        and parameter.numel() > 0
        and (
            parameter.is_contiguous()
            or (parameter.dim() == PICTURES and parameter.is_contiguous(memory_format=torch.channels_last))
        )
    )


def view(tensor: Tensor) -> Tensor:
    """Return a view of up to `ELEMENTS` elements. The step is odd, so no column is met again and again."""
    size = tensor.numel()
    count = min(size, ELEMENTS)
    step = size // count
    step -= step > 2 and step % 2 == 0  # noqa: PLR2004 - two elements
    return torch.as_strided(tensor.detach(), (count,), (step,), tensor.storage_offset())


class Sample:
    """Some parameters of one optimizer, all on one device. It holds on to their memory until `take`."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        """Choose some of the parameters, evenly spread."""
        able = [parameter for parameter in parameters if suits(parameter)]
        able = [parameter for parameter in able if parameter.device == able[0].device]
        self.parameters = able[:: max(1, -(-len(able) // PARAMETERS))]
        self.pointers: list[int] = []
        self.views: list[Tensor] = []
        self.owner = torch.zeros(0, dtype=torch.long)
        self.look()

    def look(self) -> None:
        """Make the views."""
        self.pointers = [parameter.data_ptr() for parameter in self.parameters]
        self.views = [view(parameter) for parameter in self.parameters]
        sizes = torch.tensor([each.numel() for each in self.views], dtype=torch.long)  # of none too
        self.owner = torch.repeat_interleave(torch.arange(len(self.views)), sizes)

    def take(self) -> Tensor | None:
        """Return the elements as they are; None where parameters have become something else."""
        if [parameter.data_ptr() for parameter in self.parameters] != self.pointers:
            if not all(map(suits, self.parameters)):
                return None
            self.look()
        return torch.cat(self.views) if self.views else None

    def sums(self, values: Tensor) -> Tensor:
        """Add up values by parameter."""
        values = values.to("cpu", torch.float64)
        return torch.zeros(len(self.views), dtype=torch.float64).index_add_(0, self.owner, values)

    @torch.no_grad()
    def gradients(self) -> Tensor:
        """Say of each element whether its gradient is something other than zero."""
        found = []
        for parameter, values in zip(self.parameters, self.views, strict=True):
            gradient = parameter.grad
            if gradient is None or not suits(gradient) or gradient.stride() != parameter.stride():
                found.append(torch.zeros(values.shape, dtype=torch.bool, device=parameter.device))
            else:
                found.append(view(gradient) != 0)
        return torch.cat(found)
