"""What one outermost module call began from, and the gradient that later came back to its output."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.agent.hooks import labels
from stepwarden.agent.looks.names import unwrapped
from stepwarden.agent.replay import casting, randomness, tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from stepwarden.agent.hooks.calls import Call
    from stepwarden.agent.replay.buffers import Buffers
    from stepwarden.agent.replay.casting import Casting
    from stepwarden.agent.replay.randomness import Randomness

LARGEST_GRADIENT = 32 << 20  # bytes of an output's gradient that is kept until the update
LARGEST_INPUT = 4 << 20  # bytes of an input that is copied, where a model changes its inputs in place


@dataclass(eq=False, kw_only=True)
class Snapshot:
    """
    One call, ready to be made again.

    `module` is the inner one, without wrappers; `forward` an override that a framework put on it for this
    call alone; `scattered`: a wrapper brings the inputs to its device. `gradients` holds what came back
    to the output's tensors, by their place in it: None where it was too large to keep. `prefix` is what
    the module is called in the root module that holds it. `current`: a backward pass since the last
    update came through.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    place: tuple[str, int] | None
    versions: tuple[int, ...]
    random: Randomness
    casting: Casting
    buffers: list[tuple[Tensor, int, Tensor | None]]
    labels: tuple[str, ...]
    forward: Any = None
    scattered: bool = False
    prefix: str = ""
    gradients: dict[int, Tensor | None] = field(default_factory=dict)
    ended: bool = False
    current: bool = False

    @property
    def used(self) -> bool:
        """Whether a backward pass came through."""
        return bool(self.gradients)

    def ended_with(self, output: Any) -> list[Tensor]:
        """Ask for the gradients of an output's tensors, and return those. The hooks change nothing."""
        self.ended = True
        asked = []
        for index, tensor in enumerate(tree.tensors(output)):
            if tensor.grad_fn is not None:
                asked.append(tensor)
                tensor.register_hook(self.keeper(index))  # type: ignore[no-untyped-call]  # torch's
        return asked

    def keeper(self, index: int) -> Any:
        """Return a hook that keeps a gradient; it doesn't keep the call alive where a graph lives on."""
        here = weakref.ref(self)

        def keep(gradient: Tensor | None) -> None:
            if gradient is not None and (snapshot := here()) is not None:  # None: a custom backward gave none
                snapshot.received(index, gradient.detach())

        return keep

    def received(self, index: int, gradient: Tensor) -> None:
        """Keep a gradient that came back; those of several backward passes add up."""
        self.current = True
        before = self.gradients.get(index)
        if index in self.gradients and before is None:
            return
        if gradient.numel() * gradient.element_size() > LARGEST_GRADIENT:
            self.gradients[index] = None
        else:
            self.gradients[index] = gradient if before is None else before + gradient

    def stale(self) -> str | None:
        """Say why the call can't be made as it was, if it can't."""
        if versions(tree.tensors((self.args, self.kwargs))) != self.versions:
            return "an input was changed in place since"
        for buffer, version, kept in self.buffers:
            if kept is None and versions([buffer]) != (version,):
                return f"a buffer of {buffer.numel()} values was changed in place since, too many to copy"
        return None


def versions(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Return how often tensors were changed in place; those of inference mode don't count."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in tensors)  # noqa: SLF001 - the only count of changes


def take(call: Call, buffers: Buffers, *, copies: bool) -> Snapshot:
    """
    Keep what a call begins from. Waits for no device.

    `copies`: the model is known to change its inputs in place, so small ones are copied.
    """
    inner = unwrapped(call.module)
    args, kwargs = call.args, call.kwargs
    if copies:
        args, kwargs = tree.rebuilt(args, copied), tree.rebuilt(kwargs, copied)
    return Snapshot(
        module=inner,
        args=args,
        kwargs=kwargs,
        step=call.step,
        place=call.place,
        versions=versions(tree.tensors((args, kwargs))),
        random=randomness.take(),
        casting=casting.take(),
        buffers=buffers.take(inner),
        labels=tuple(labels.OPEN.open),
        forward=vars(inner).get("forward"),
        scattered=bool(getattr(call.module, "device_ids", None)),
    )


def copied(tensor: Tensor) -> Tensor:
    """Copy a small input; one that has a history is left as it is."""
    if tensor.grad_fn is not None or tensor.numel() * tensor.element_size() > LARGEST_INPUT:
        return tensor
    with torch.no_grad():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
