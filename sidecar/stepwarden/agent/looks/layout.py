"""
Which parameters have gradients in a step, and what they are called.

The order is that of the step's norms. Names are looked for only where a parameter is new.
"""

import operator
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepwarden.agent.watch import Moment

if TYPE_CHECKING:
    from torch import Tensor

# Names of the parts of dotted names that adapters have in peft, loralib and diffusers.
ADAPTER = re.compile(
    r"(?:^|\.)(?:lora|loha|lokr|hada|ia3|oft|boft|vera|adapter|prefix_encoder|prompt_encoder)s?(?:_[^.]*)?(?:\.|$)",
    re.IGNORECASE,
)


class Layout:
    """The parameters of an optimizer's last step; kept no longer than the optimizer, which has them too."""

    def __init__(self) -> None:
        """Begin before the first step."""
        self.parameters: list[Tensor] = []
        self.names: list[str | None] = []
        self.called: dict[int, str | None] = {}
        self.numbers: dict[int, int] = {}

    def follow(self, moment: Moment) -> bool:
        """Take over a step's parameters; return whether they are others than in the step before."""
        parameters = moment.reading.parameters
        if len(parameters) == len(self.parameters) and all(map(operator.is_, parameters, self.parameters)):
            return False
        if any(id(parameter) not in self.called for parameter in parameters):
            names = moment.names()
            self.called |= {id(parameter): names.get(id(parameter)) for parameter in parameters}
        self.parameters = list(parameters)
        for parameter in parameters:
            self.numbers.setdefault(id(parameter), len(self.numbers))
        self.names = [self.called[id(parameter)] for parameter in parameters]
        return True

    def bits(self) -> dict[int, int]:
        """Return the bit of each parameter that was seen so far, by id: a power of two, the same for good."""
        return {key: 1 << number for key, number in self.numbers.items()}

    def mask(self, indices: Iterable[int]) -> int:
        """Return the bits of some of the step's parameters."""
        mask = 0
        for index in indices:
            mask |= 1 << self.numbers[id(self.parameters[index])]
        return mask


def grouped(named: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Put parameters together by the module that owns them."""
    groups: dict[str, list[int]] = {}
    for name, index in named:
        groups.setdefault(name.rpartition(".")[0], []).append(index)
    return groups
