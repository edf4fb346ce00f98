"""
What a loss was multiplied by: the marks that a GradScaler's results carry through the graph.

A mark sits in the metadata of the node that made the product, lives as long as it, and keeps no tensor
but the scale and a loss's one number. So a loss is known as scaled also where it was divided or added to
others after scaling.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from torch.amp import GradScaler

KEY = "stepwarden.scale"
NEAR = 12  # nodes that are looked at behind a loss
LINEAR = (  # what people put between scaling and backward; a factor goes through it
    "MulBackward",
    "DivBackward",
    "AddBackward",
    "SubBackward",
    "NegBackward",
    "SumBackward",
    "MeanBackward",
    "StackBackward",
    "CloneBackward",
    "ToCopyBackward",
    "ViewBackward",
    "SqueezeBackward",
    "UnsqueezeBackward",
)


class Mark:
    """
    That `scaler` made a tensor of `loss`, with `scale`, its tensor (it changes in `update` alone).

    `value` is the loss's number, on its device; None where it has several.
    """

    __slots__ = ("loss", "scale", "scaler", "value")

    def __init__(self, scaler: GradScaler, loss: Tensor) -> None:
        """Remember them; the loss itself, with its graph, is not kept."""
        self.scaler = weakref.ref(scaler)
        self.loss = weakref.ref(loss)
        self.value: Tensor | None = loss.detach() if loss.numel() == 1 else None
        self.scale: Tensor | None = scaler._scale  # noqa: SLF001 - `get_scale` would wait for the device


def mark(scaler: GradScaler, losses: Any, outcomes: Any) -> list[Tensor]:
    """Mark what a scaler made of some losses (a tensor, or lists and tuples of them); return the losses."""
    if isinstance(losses, Tensor) and isinstance(outcomes, Tensor):
        if outcomes is losses or outcomes.grad_fn is None:
            return []  # a scaler that is switched off hands a loss back
        kept(outcomes.grad_fn)[KEY] = Mark(scaler, losses)
        return [losses]
    if isinstance(losses, list | tuple) and isinstance(outcomes, list | tuple):
        return [
            loss for pair in zip(losses, outcomes, strict=False) for loss in mark(scaler, pair[0], pair[1])
        ]
    return []


def kept(node: Any) -> dict[str, Any]:
    """Return what is kept with a node of the graph (torch's annotation takes the property for a method)."""
    metadata: dict[str, Any] = node.metadata
    return metadata


def scaled_by(tensor: Tensor) -> Mark | None:
    """Return the mark of the nearest scaling behind a tensor, if there is one."""
    waiting = deque([tensor.grad_fn])
    for _ in range(NEAR):
        if not waiting:
            return None
        node = waiting.popleft()
        if node is None:
            continue
        found = kept(node).get(KEY)
        if isinstance(found, Mark):
            return found
        if node.name().startswith(LINEAR):
            waiting.extend(before for before, _ in node.next_functions)
    return None
