"""
Which parameters a backward pass will reach, and on which ways: a walk of the autograd graph.

Some 20 µs a node, so it is for the steps at which something is in question. It reads no tensor
that a node has saved: under checkpointing that would recompute it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

LIMIT = 200_000  # nodes; larger graphs are left alone
# What only adds up terms of a loss, weighs them, or takes their mean.
LINEAR = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Sub", "Neg", "Mean", "Sum", "ToCopy", "Stack", "View", "Squeeze", "Mul", "Div")
    for number in ("0", "1")
)
# What only presents a parameter in another form.
FORMS = frozenset(f"{name}Backward0" for name in ("T", "Transpose", "Permute", "View", "ToCopy"))
# What sums up a parameter by itself: a penalty, or a way to give an unused one a gradient of zero.
PENALTIES = frozenset(
    f"{name}Backward{number}"
    for name in ("Sum", "Mean", "Pow", "Abs", "Norm", "LinalgVectorNorm")
    for number in ("0", "1")
)
LEAF = "torch::autograd::AccumulateGrad"

Node = Any  # torch.autograd.graph.Node, whose subclasses are made by torch as they are needed


class Graph:
    """
    The graph of one backward pass. `bits` numbers parameters by id, each by a power of two.

    `reached` has the bits of all parameters below a node, itself included.
    """

    def __init__(self, tensors: Iterable[Tensor], bits: Mapping[int, int]) -> None:
        """Walk the graph, before backward frees it. Raises `OverflowError` where it is too large."""
        self.roots: list[Node] = [
            node for tensor in tensors if (node := getattr(tensor, "grad_fn", None)) is not None
        ]
        self.bits = bits
        self.children: dict[Node, tuple[Node, ...]] = {}
        self.reached: dict[Node, int] = {}
        self.order: list[Node] = []
        for root in self.roots:
            self.walk(root)

    def walk(self, root: Node) -> None:
        """Visit what is below a node, children first."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.reached:
                stack.pop()
                continue
            if node not in self.children:
                self.children[node] = tuple(child for child, _ in node.next_functions if child is not None)
                if len(self.children) > LIMIT:
                    message = f"the autograd graph has more than {LIMIT} nodes"
                    raise OverflowError(message)
            waiting = [child for child in self.children[node] if child not in self.reached]
            if waiting:
                stack.extend(waiting)
                continue
            self.reached[node] = self.own(node)
            self.order.append(node)
            stack.pop()

    def own(self, node: Node) -> int:
        """Return the bits below a node whose children are known."""
        mask = self.bits.get(id(node.variable), 0) if node.name() == LEAF else 0
        for child in self.children[node]:
            mask |= self.reached[child]
        return mask

    @property
    def all(self) -> int:
        """The bits of all parameters that are reached."""
        mask = 0
        for root in self.roots:
            mask |= self.reached[root]
        return mask

    def terms(self, closed: frozenset[Node] = frozenset()) -> tuple[list[Node], list[Node]]:
        """
        Return the terms that the loss is summed up of, and the sums and factors above them.

        What is below a `closed` factor is left out.
        """
        terms, sums = [], []
        stack, seen = list(self.roots), set(self.roots)
        while stack:
            node = stack.pop()
            if node in closed:
                continue
            children = self.children[node]
            if node.name() not in LINEAR or (node.name()[:3] in ("Mul", "Div") and len(children) != 1):
                terms.append(node)
                continue
            sums.append(node)
            stack.extend(child for child in children if child not in seen)
            seen.update(children)
        return terms, sums

    def upstream(self) -> dict[int, int]:
        """
        Return by a parameter's bit what is below the operators that use it, itself left out.

        A parameter that is not used, but in a penalty, is not in it.
        """
        above: dict[int, int] = {}
        forms: set[Node] = set()
        for node in self.order:
            if node.name() == LEAF or (node.name() in FORMS and forms.issuperset(self.children[node])):
                forms.add(node)
                continue
            for child in self.children[node]:
                if child in forms and node.name() not in PENALTIES and (bit := self.reached[child]):
                    above[bit] = above.get(bit, 0) | (self.reached[node] & ~bit)
        return above

    def joined(self, first: int, second: int) -> bool:
        """
        Whether two sets of parameters run side by side into one operator, of one term of the loss.

        Then some operator has an input that depends on most of the first and nothing of the
        second, and another one the other way round.
        """
        sums = set(self.terms()[1])
        for node in self.order:
            below = self.reached[node]
            if node in sums or not below & first or not below & second:
                continue
            masks = [self.reached[child] for child in self.children[node]]
            if any(mostly(mask, first, second) for mask in masks) and any(
                mostly(mask, second, first) for mask in masks
            ):
                return True
        return False


MOST = 0.8


def mostly(mask: int, wanted: int, other: int) -> bool:
    """Whether a mask has most of the wanted bits and none of the others."""
    return not mask & other and (mask & wanted).bit_count() >= MOST * wanted.bit_count()


class Factors:
    """Which factors of a loss's terms are zero: seen while the backward pass goes through them."""

    def __init__(self, graph: Graph) -> None:
        """Put hooks on the factors of one graph; they go with it."""
        self.graph = graph
        self.passed: dict[Node, Tensor] = {}
        for node in graph.terms()[1]:
            if node.name().startswith("Mul"):
                node.register_hook(self.behind(node))

    def behind(self, node: Node) -> Callable[[Sequence[Tensor | None], Sequence[Tensor | None]], None]:
        """Return a hook that notes whether something comes through a factor."""

        def hook(inputs: Sequence[Tensor | None], _outputs: Sequence[Tensor | None]) -> None:
            with torch.no_grad():
                through = [tensor.any() for tensor in inputs if tensor is not None]
                if through:
                    self.passed[node] = torch.stack(through).any()

        return hook

    def weighed(self) -> int:
        """Return the bits of what is reached by factors that are not zero. Waits for the device."""
        zero = frozenset(node for node, passed in self.passed.items() if not bool(passed))
        mask = 0
        for term in self.graph.terms(zero)[0]:
            mask |= self.graph.reached[term]
        return mask
