"""Which tensor and which rank a bad gradient is blamed on. Asked only when a step was bad."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stepwarden.agent.looks.gradients import counts
from stepwarden.agent.looks.reading import Reading, Values
from stepwarden.probes import NonFinite


def confirmed(reading: Reading, values: Values) -> dict[int, tuple[int, int] | None]:
    """
    Return the indices of bad gradients, with their counts of NaN and Inf.

    An L2 norm of finite values can overflow, so each is looked at; where the gradients
    are gone, its norm is all there is, and the counts are None.
    """
    suspects = [index for index, norm in enumerate(values.norms) if not math.isfinite(norm)]
    if not reading.gradients:
        return dict.fromkeys(suspects)
    counted = {index: counts(reading.gradients[index].detach()) for index in suspects}
    return {index: found for index, found in counted.items() if any(found)}


def own(reading: Reading, ranks: int) -> bool | None:
    """Return whether a rank's gradients were already bad before the reduction, if that is known."""
    if ranks == 1:
        return True
    return bool(locally_bad(reading)) if reading.local else None


def locally_bad(reading: Reading) -> list[int]:
    """Return the ids of parameters that were bad before the reduction, in order of accumulation."""
    return [key for key, norm in reading.local.items() if not bool(torch.isfinite(norm))]


def first(reading: Reading, bad: Sequence[int]) -> int:
    """
    Return the index of the bad gradient that is closest to the birth.

    Backward goes from the loss to the first layer, so that is the one that was accumulated
    first; where the order isn't known, the last in order of registration.
    """
    index = {id(reading.parameters[item]): item for item in bad}
    for key in (*locally_bad(reading), *reading.local):
        if key in index:
            return index[key]
    return max(bad)


def describe(
    reading: Reading, bad: Mapping[int, tuple[int, int] | None], of: int, called: Mapping[int, str]
) -> NonFinite:
    """Say which gradients are bad."""
    index = first(reading, list(bad))
    parameter: Tensor = reading.parameters[index]
    nan, inf = bad[index] or (None, None)
    return NonFinite(
        name=called.get(id(parameter)), tensors=len(bad), of=of, nan=nan, inf=inf, size=parameter.numel()
    )
