"""What is read of one step, as one small vector: waited for at once, or looked at a step later."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from stepwarden.agent.looks.gradients import collect, norms


@dataclass(slots=True)
class Values:
    """The numbers of a step on the host."""

    norms: list[float]
    loss: float | None

    @property
    def gradient_norm(self) -> float | None:
        """The L2 norm over all gradients; None where there is none."""
        if any(map(math.isnan, self.norms)):
            return math.nan
        return math.hypot(*self.norms) if self.norms else None


@dataclass(slots=True)
class Reading:
    """
    The norms of the gradients of one step, and its loss, still on their device.

    `local` holds the norms before the reduction, by parameter id, `place` the call of backward,
    `began` the time since the epoch, `seconds` the time since the step before, `spent`
    what the hooks took of it. `ready` is None on
    the CPU, and else the event after which `vector` has reached the host.
    """

    step: int
    parameters: list[Tensor]
    gradients: list[Tensor]
    loss: float | None
    vector: Tensor | None
    has_loss: bool
    scaled: bool
    local: dict[int, Tensor]
    place: tuple[str, int] | None
    began: float
    seconds: float | None
    spent: float
    overhead: float = 0.0
    ready: Any = None

    @property
    def on_host(self) -> bool:
        """Whether reading it waits for nothing."""
        return self.vector is None or self.vector.device.type == "cpu"

    def values(self) -> Values:
        """Return its numbers. Waits for the device, unless `ready` has passed."""
        numbers: list[float] = self.vector.tolist() if self.vector is not None else []
        loss = numbers.pop() if self.has_loss else self.loss
        return Values(numbers, loss)

    def send_to_host(self) -> None:
        """Begin the copy to the host, and let go of the gradients."""
        self.gradients = []
        if self.vector is not None and not self.on_host:
            host = torch.empty(self.vector.shape, dtype=self.vector.dtype, pin_memory=True)
            host.copy_(self.vector, non_blocking=True)
            self.ready = getattr(torch, self.vector.device.type).Event()
            self.ready.record()
            self.vector = host

    @property
    def arrived(self) -> bool:
        """Whether what was sent has reached the host."""
        return self.ready is None or bool(self.ready.query())


@dataclass(slots=True)
class Before:
    """What was gathered up to a step's boundary; the fields are those of `Reading`."""

    step: int
    loss: float | Tensor | None
    local: dict[int, Tensor]
    place: tuple[str, int] | None
    began: float
    seconds: float | None
    spent: float


@torch.no_grad()
def read(optimizer: Optimizer, before: Before) -> Reading:
    """Read an optimizer's gradients as they are now. Waits for nothing."""
    loss = before.loss
    parameters, gradients = collect(optimizer)
    vector = norms(gradients) if gradients else None
    scale = getattr(optimizer, "grad_scale", None)
    if vector is not None and isinstance(scale, Tensor):
        vector = vector / scale.to(vector.device, vector.dtype, non_blocking=True)
    has_loss = isinstance(loss, Tensor)
    if isinstance(loss, Tensor):
        one = loss.reshape(1)
        vector = one if vector is None else torch.cat([vector, one.to(vector.device, vector.dtype)])
    return Reading(
        step=before.step,
        local=before.local,
        place=before.place,
        began=before.began,
        seconds=before.seconds,
        spent=before.spent,
        parameters=parameters,
        gradients=gradients,
        loss=None if isinstance(loss, Tensor) else loss,
        vector=vector,
        has_loss=has_loss,
        scaled=getattr(optimizer, "found_inf", None) is not None,
    )


def capturing() -> bool:
    """Whether a CUDA graph is being captured: a read that waits would break it."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]  # torch's
