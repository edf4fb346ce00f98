"""One optimizer's updates, measured on a few elements of each parameter: how large, and whether at all."""

import statistics
from collections import deque

import torch
from torch import Tensor
from torch.optim import Optimizer

from stepwarden.agent.looks.sampling import Sample
from stepwarden.probes.parameter_not_updated import Still
from stepwarden.probes.update_wrong_size import Sizes

MATRIX = 256  # elements of the smallest weight matrix whose updates are judged
BORN_ZERO = 1e-4  # root mean square of a matrix that begins at zero, as the second one of an adapter
LOW = (torch.float16, torch.bfloat16)
LAST = 5  # looks that are remembered


class Updates:
    """What is known of one optimizer's updates."""

    def __init__(self, sample: Sample) -> None:
        """Begin before the first update."""
        self.sample = sample
        self.looks = self.idle = 0
        self.highest = 0.0
        self.low: deque[tuple[int, int]] = deque(maxlen=LAST)
        self.medians: deque[float] = deque(maxlen=LAST)
        elements = len(self.sample.owner)
        self.asked, self.moved = (
            torch.zeros(elements, dtype=torch.bool),
            torch.zeros(elements, dtype=torch.bool),
        )
        half = torch.tensor([each.dtype in LOW for each in self.sample.parameters], dtype=torch.bool)
        self.half = half[self.sample.owner]
        self.dtype = next((str(each.dtype) for each in sample.parameters if each.dtype in LOW), "")
        self.judged: list[bool] | None = None
        self.worst: Tensor | None = None

    def look(self, before: Tensor, after: Tensor, *, scaled: bool) -> tuple[Sizes, Still] | None:
        """
        Measure an update on the host.

        None where a scaler may have skipped it.
        """
        before, after = before.cpu(), after.cpu()
        moved = before != after
        if scaled and not moved.any():
            return None
        asked = self.sample.gradients().cpu()
        self.looks += 1
        self.asked |= asked
        self.moved |= moved & asked
        if self.half.any():
            low = asked & self.half
            self.low.append((int((moved & low).sum()), int(low.sum())))
        return self.sizes(before, after, asked), self.still()

    def sizes(self, before: Tensor, after: Tensor, asked: Tensor) -> Sizes:
        """Compare the update with the weights, in each matrix that has a gradient."""
        weights = self.sample.sums(before.double() ** 2)
        updates = self.sample.sums((after.double() - before.double()) ** 2)
        if self.judged is None:
            mean = (weights / self.sample.sums(torch.ones_like(before))).sqrt().tolist()
            self.judged = [
                parameter.dim() > 1 and parameter.numel() >= MATRIX and size >= BORN_ZERO
                for parameter, size in zip(self.sample.parameters, mean, strict=True)
            ]
        live = (self.sample.sums(asked) > 0).tolist()
        ratios = (updates / weights).sqrt().tolist()
        found = {
            index: ratio
            for index, ratio in enumerate(ratios)
            if live[index] and self.judged[index] and ratio < float("inf")
        }
        if not found:
            return Sizes(of=0)
        worst = max(found, key=found.__getitem__)
        self.medians.append(statistics.median(found.values()))
        self.highest = max(self.highest, found[worst])
        self.worst = self.sample.parameters[worst]
        return Sizes(
            of=len(found),
            medians=tuple(self.medians),
            largest=found[worst],
            highest=self.highest,
            looks=self.looks,
        )

    def still(self) -> Still:
        """Sum up what moved so far."""
        of = sum(count for _, count in self.low)
        low = sum(count for count, _ in self.low) / of if of and len(self.low) == LAST else None
        return Still(
            of=int(self.asked.sum()),
            moved=int(self.moved.sum()),
            looks=self.looks,
            low=low,
            idle=self.idle,
        )


def rate(optimizer: Optimizer) -> float | None:
    """Return the largest learning rate of an optimizer; None where it can't be told without waiting."""
    largest = None
    for group in optimizer.param_groups:
        found = group.get("lr")
        if isinstance(found, Tensor) and found.device.type == "cpu":
            found = float(found)
        if not isinstance(found, int | float):
            return None
        largest = found if largest is None else max(largest, found)
    return largest
