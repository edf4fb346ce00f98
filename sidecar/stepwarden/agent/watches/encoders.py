"""
Encoders side by side: how far apart their gradients' norms are.

Which modules these are is found in the tree of modules; whether they share a loss, in the
graph of a backward pass, and only once they have been out of proportion for some steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import nn

from stepwarden.agent.looks import names
from stepwarden.agent.looks.layout import ADAPTER, Layout
from stepwarden.agent.looks.looking import Looking
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import modality_imbalance
from stepwarden.probes.modality_imbalance import Proportion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

LAYERS = 2  # modules with weight matrices, at least: a head is no encoder


@dataclass(slots=True, eq=False)
class Pair:
    """The encoders of one optimizer, and how long two of them have been out of proportion."""

    layout: Layout = field(default_factory=Layout)
    encoders: dict[str, list[int]] = field(default_factory=dict)
    looking: Looking = field(default_factory=Looking)
    between: tuple[str, str] | None = None
    steps: int = 0
    first: float = 0.0
    shared: dict[tuple[str, str], bool] = field(default_factory=dict)

    def follow(self, moment: Moment) -> None:
        """Keep up with which parameters have gradients."""
        if not self.layout.follow(moment):
            return
        places = {id(parameter): index for index, parameter in enumerate(self.layout.parameters)}
        self.encoders = {}
        for name, module in found(moment.roots(), places.keys()):
            owned = [places[id(parameter)] for parameter in module.parameters() if id(parameter) in places]
            if not any(self.left_alone(index) for index in owned):
                self.encoders[name] = owned

    def left_alone(self, index: int) -> bool:
        """Whether a gradient says little: an adapter's, or one of which other ranks have parts."""
        return bool(ADAPTER.search(self.layout.names[index] or "")) or hasattr(
            self.layout.parameters[index], "to_local"
        )

    def measured(self, norms: Sequence[float], factor: float) -> Proportion | None:
        """Return the two that are the furthest apart, and count the steps in which they are too far."""
        sizes = {
            name: size
            for name, owned in self.encoders.items()
            if 0 < (size := math.hypot(*(norms[index] for index in owned))) < math.inf
        }
        if len(sizes) < 2:  # noqa: PLR2004 - a pair
            return None
        starved, dominant = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        ratio = sizes[dominant] / sizes[starved]
        if ratio < factor or (starved, dominant) != self.between:
            self.between, self.steps, self.first = (starved, dominant), 0, ratio
        self.steps += ratio >= factor
        return Proportion(
            starved=starved,
            dominant=dominant,
            norms=(sizes[starved], sizes[dominant]),
            steps=self.steps,
            first=self.first,
            last=ratio,
            shared=self.shared.get((starved, dominant)),
        )


class Encoders(Watch):
    """Makes a `Proportion` of each step in which two encoders have gradients."""

    kinds = (modality_imbalance.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first backward pass."""
        super().__init__(host)
        self.settings = host.environment.probes.probes[modality_imbalance.KIND]
        self.known: WeakKeyDictionary[Optimizer, Pair] = WeakKeyDictionary()
        self.asking = False

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Look at the graph, where something is in question."""
        if self.asking:
            for pair in self.known.values():
                if pair.looking.wanted:
                    pair.looking.look(tensors, pair.layout)

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Compare the encoders' norms."""
        pair = self.known.get(moment.optimizer)
        if pair is None:
            pair = self.known[moment.optimizer] = Pair()
        pair.follow(moment)
        if moment.values is None or len(pair.encoders) < 2:  # noqa: PLR2004 - a pair
            return ()
        self.answer(pair)
        seen = pair.measured(moment.values.norms, self.settings["factor"])
        if seen is None:
            return ()
        pair.looking.wanted = seen.shared is None and seen.steps >= self.settings["steps"] - 1
        self.asking = any(each.looking.wanted for each in self.known.values())
        return (seen,)

    @staticmethod
    def answer(pair: Pair) -> None:
        """Note what was seen in the graphs of this step."""
        if pair.looking.looked and pair.between is not None:
            first, second = (pair.layout.mask(pair.encoders.get(name, ())) for name in pair.between)
            if first and second:
                pair.shared[pair.between] = pair.looking.joined(first, second)
            pair.looking.forget()


def found(roots: Sequence[nn.Module], trained: Collection[int]) -> list[tuple[str, nn.Module]]:
    """
    Return the modules that may be encoders of one model, with their names.

    Those are the children of the outermost module that has at least two of some layers, or
    several models that one optimizer trains.
    """
    inside = [("", root) for root in roots if layers(root, trained) >= LAYERS]
    if len(inside) > 1:
        return [(type(root).__name__, root) for _, root in inside]
    while len(inside) == 1:
        inside = [pair for pair in children(*inside[0]) if layers(pair[1], trained) >= LAYERS]
    return inside


def children(name: str, module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Yield the children of a module that may be encoders. Lists hold layers or experts, and are left out."""
    for key, child in module.named_children():
        inner = names.clean(f"{name}.{key}" if name else key)
        if isinstance(child, nn.ModuleDict):
            yield from children(inner, child)
        elif not isinstance(child, nn.ModuleList):
            yield inner, child


def layers(module: nn.Module, trained: Collection[int]) -> int:
    """Return how many modules of a tree own a weight matrix that is trained."""
    return sum(
        any(parameter.ndim > 1 and id(parameter) in trained for parameter in inner.parameters(recurse=False))
        for inner in module.modules()
    )
