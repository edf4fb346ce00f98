"""Parameters that are moved by hand, as a target network: they need no gradient."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from stepwarden.agent.trace.recorder import Recorder


def rewritten(recorder: Recorder, parameter: Tensor) -> bool:
    """Whether the recorded code itself changed a parameter, from the first forward pass on."""
    values = recorder.book.values
    return values.writers.get(values.memory(parameter), -1) >= (recorder.book.forward or 0)


@torch.no_grad()
def copies(suspects: Sequence[Tensor], trained: Iterable[Tensor]) -> bool:
    """
    Whether parameters are copies of trained ones, as a target network's are in the beginning.

    Those that hold one number only (norms, biases) tell nothing. Waits for the device.
    """
    # of sharded ones this rank's own part: no collective is called
    suspects, trained = [*map(local, suspects)], [*map(local, trained)]
    by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    for parameter in trained:
        by_shape[tuple(parameter.shape)].append(parameter)
    telling = [suspect for suspect in suspects if varied(suspect)]
    return bool(telling) and all(
        any(
            torch.equal(suspect, one)
            for one in by_shape[tuple(suspect.shape)]
            if one.device == suspect.device
        )
        for suspect in telling
    )


def local(parameter: Tensor) -> Tensor:
    """Return the values of a parameter that lie on this rank."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def varied(parameter: Tensor) -> bool:
    """Whether a parameter holds different numbers."""
    return parameter.numel() > 1 and not bool((parameter == parameter.reshape(-1)[0]).all())
