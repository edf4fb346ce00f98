"""
The part of the graph between a module's output and the loss: the user's own loss code.

Backward frees what the graph saved, so the few small values that can tell a division by zero or a
logarithm of it are held from before the pass until the update.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from stepwarden.agent.replay import magnitude

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 48  # nodes that are looked at
LARGEST = 1 << 16  # values of a tensor that is held

SAVED = {
    "LogBackward0": ("_saved_self", "log"),
    "Log2Backward0": ("_saved_self", "log2"),
    "Log10Backward0": ("_saved_self", "log10"),
    "Log1PBackward0": ("_saved_self", "log1p"),
    "SqrtBackward0": ("_saved_result", "sqrt"),
    "RsqrtBackward0": ("_saved_result", "rsqrt"),
    "ReciprocalBackward0": ("_saved_result", "reciprocal"),
    "DivBackward0": ("_saved_other", "div"),
    "PowBackward0": ("_saved_self", "pow"),
    "ExpBackward0": ("_saved_result", "exp"),
    "NormBackward0": ("_saved_result", "norm"),
    "LinalgVectorNormBackward0": ("_saved_result", "linalg_vector_norm"),
    "AcosBackward0": ("_saved_self", "acos"),
    "AsinBackward0": ("_saved_self", "asin"),
    "LogSoftmaxBackward0": ("_saved_result", "log_softmax"),
    "SoftmaxBackward0": ("_saved_result", "softmax"),
    "NllLossBackward0": ("_saved_total_weight", "nll_loss"),
    "MseLossBackward0": ("_saved_target", "the target of mse_loss"),
    "SmoothL1LossBackward0": ("_saved_target", "the target of smooth_l1_loss"),
    "HuberLossBackward0": ("_saved_target", "the target of huber_loss"),
    "BinaryCrossEntropyBackward0": ("_saved_target", "the target of binary_cross_entropy"),
    "BinaryCrossEntropyWithLogitsBackward0": (
        "_saved_target",
        "the target of binary_cross_entropy_with_logits",
    ),
}
TARGET = "the target of "


@dataclass(frozen=True, slots=True)
class Suspect:
    """A node of the loss, by its operator, with the value that tells whether it is to blame."""

    op: str
    value: Tensor | None
    exponent: float | None = None

    def guilty(self) -> bool:
        """Whether what it saved makes NaN or Inf, in the value or in the gradient. Waits for the device."""
        value = self.value
        if value is None:
            return False
        if self.op in {"log", "log2", "log10", "pow"}:
            bound = 0.0
        elif self.op == "log1p":
            bound = -1.0
        elif self.op in {"sqrt", "div", "norm", "nll_loss"}:
            return bool((value == 0).any())
        elif self.op in {"acos", "asin"}:
            return bool((value.abs() >= 1).any())
        else:
            return not math.isfinite(magnitude.signed(value))
        if self.op == "pow" and (self.exponent is None or self.exponent >= 1):
            return not math.isfinite(magnitude.signed(value))
        return bool((value <= bound).any())


class LossSide:
    """What the losses since the last update were made by, down to the outputs of module calls."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.outputs: set[Any] = set()
        self.chain: list[str] = []
        self.suspects: list[Suspect] = []

    def forget(self) -> None:
        """Let go of all."""
        self.outputs, self.chain, self.suspects = set(), [], []

    def began_behind(self, outputs: Sequence[Tensor]) -> None:
        """Note where loss code begins."""
        self.outputs.update([tensor.grad_fn for tensor in outputs])

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Walk from the losses to the outputs. Waits for no device."""
        waiting = [tensor.grad_fn for tensor in tensors if isinstance(tensor, Tensor)]
        seen: set[Any] = set()
        while waiting and len(self.chain) < LONGEST:
            node = waiting.pop(0)
            if node is None or node in seen or node in self.outputs:
                continue
            seen.add(node)
            self.chain.append(node.name())
            if (saved := SAVED.get(node.name())) is not None:
                self.suspects.append(suspect(node, *saved))
            waiting += [following for following, _ in node.next_functions]
        self.outputs.clear()  # what they hold is the graph, and that is the user's

    def guilty(self) -> list[str]:
        """Return the operators that are to blame, by what they saved."""
        return [one.op for one in self.suspects if one.guilty()]


def suspect(node: Any, attribute: str, op: str) -> Suspect:
    """Hold what a node saved, if it is small."""
    value = getattr(node, attribute, None)
    if not isinstance(value, Tensor) or value.numel() > LARGEST:
        return Suspect(op, None)
    exponent = getattr(node, "_saved_exponent", None)
    return Suspect(op, value.detach(), float(exponent) if isinstance(exponent, int | float) else None)
