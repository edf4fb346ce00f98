"""A backward pass that is run again, each of its nodes watched: what came in, and what it made of that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.agent.replay import magnitude
from stepwarden.probes.birth import Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Backward:
    """The nodes in the order in which they ran, leaves behind them, and the indices of bad leaves."""

    nodes: list[Node]
    bad: list[int]


class Watched:
    """One node, and what went through it."""

    def __init__(self, node: Any) -> None:
        """Put a hook on it: the graph is the replay's own, and goes with it."""
        self.node = node
        self.received: list[Tensor | float] = []
        self.sent: list[Tensor | float] = []
        self.smallest: float | None = None

    def ran(self, order: list[Watched]) -> Any:
        """Return the hook. It changes nothing."""

        def hook(made: Sequence[Tensor | None], came: Sequence[Tensor | None]) -> None:
            self.received = [measured(gradient) for gradient in came]
            self.sent = [measured(gradient) for gradient in made]
            if bad(self.sent) and not bad(self.received):
                self.smallest = smallest(self.node)  # now: what was saved is let go behind the hooks
            order.append(self)

        return hook


def measured(gradient: Tensor | None) -> Tensor | float:
    """Measure a gradient that may not be there."""
    return magnitude.NOTHING if gradient is None else magnitude.measure(gradient)


def bad(measures: Sequence[Tensor | float]) -> bool:
    """Whether one is not finite. Waits for the device."""
    return not all(map(math.isfinite, magnitude.read(measures)))


def smallest(node: Any) -> float | None:
    """Return the smallest magnitude in what a node saved, None where nothing is found."""
    found = []
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:  # a hook of the user's on saved tensors gives each only once
                continue
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
                found.append(float(value.detach().abs().min()))
    return min(found, default=None)


def graph(roots: Sequence[Tensor]) -> dict[Any, None]:
    """Return the nodes that some tensors come from. They are the same objects while they are held."""
    seen: dict[Any, None] = {}
    waiting = [root.grad_fn for root in roots]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [following for following, _ in node.next_functions]
    return seen


def again(
    roots: Sequence[tuple[Tensor, Tensor]], wanted: Sequence[Tensor], makers: Mapping[int, int]
) -> Backward:
    """
    Run backward from tensors with their recorded gradients to the leaves that are `wanted`.

    `makers` gives the forward operator of each node by its sequence number. No `.grad` is touched.
    """
    order: list[Watched] = []
    tensors = [tensor for tensor, _ in roots]
    nodes = graph(tensors)
    for node in nodes:
        node.register_hook(Watched(node).ran(order))
    found = torch.autograd.grad(tensors, list(wanted), [gradient for _, gradient in roots], allow_unused=True)
    results = magnitude.read([measured(gradient) for gradient in found])
    places = {id(watched.node): index for index, watched in enumerate(order)}
    leaves: dict[int, int] = {}
    for node in nodes:
        if (variable := getattr(node, "variable", None)) is not None and id(node) not in places:
            places[id(node)] = len(order) + len(leaves)
            leaves[id(variable)] = places[id(node)]
    spoiled = [place for place, value in enumerate(results) if not math.isfinite(value)]
    made = plain(order, places, makers)
    made += [Node(name="leaf", received=(), sent=())] * len(leaves)
    return Backward(made, [leaves[id(wanted[place])] for place in spoiled if id(wanted[place]) in leaves])


def plain(order: Sequence[Watched], places: Mapping[int, int], makers: Mapping[int, int]) -> list[Node]:
    """Put what was watched as plain numbers. Waits for the devices."""
    flat = magnitude.read([one for watched in order for one in (*watched.received, *watched.sent)])
    numbers = iter(flat)
    made = []
    for watched in order:
        received = tuple(next(numbers) for _ in watched.received)
        sent = [next(numbers) for _ in watched.sent]
        targets = [places.get(id(following)) for following, _ in watched.node.next_functions]
        made.append(
            Node(
                name=watched.node.name(),
                received=received,
                sent=tuple(zip(sent, targets, strict=False)),
                op=makers.get(number(watched.node)),
                smallest=watched.smallest,
            )
        )
    return made


def number(node: Any) -> int:
    """Return a node's place in the order in which nodes were made."""
    return int(node._sequence_nr())  # noqa: SLF001 - the only thing that ties it to the forward pass
