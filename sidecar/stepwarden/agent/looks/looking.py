"""A look at the graphs of one step's backward passes, taken only when it is asked for."""

from collections.abc import Sequence

from torch import Tensor

from stepwarden.agent.looks.layout import Layout
from stepwarden.agent.looks.reach import Factors, Graph

PASSES = 16  # of a step that are looked at: accumulation over many micro-batches has like ones


class Looking:
    """What is asked, and what was seen so far. It keeps graphs only until the step's boundary."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self.wanted = False
        self.factors: list[Factors] = []

    @property
    def looked(self) -> bool:
        """Whether some pass was looked at."""
        return bool(self.factors)

    def look(self, tensors: Sequence[Tensor], layout: Layout) -> None:
        """Look at a pass that begins."""
        if len(self.factors) < PASSES:
            self.factors.append(Factors(Graph(tensors, layout.bits())))

    def answer(self) -> tuple[int, dict[int, int]]:
        """
        Return the bits that are reached by no factor of zero, and what lies upstream of each.

        Waits for the device, and forgets the graphs.
        """
        weighed, upstream = 0, dict[int, int]()
        for factors in self.factors:
            weighed |= factors.weighed()
            for bit, mask in factors.graph.upstream().items():
                upstream[bit] = upstream.get(bit, 0) | mask
        self.forget()
        return weighed, upstream

    def joined(self, first: int, second: int) -> bool:
        """Whether two sets of parameters run side by side into one term of a loss."""
        return any(factors.graph.joined(first, second) for factors in self.factors)

    def forget(self) -> None:
        """Let go of the graphs."""
        self.factors = []
