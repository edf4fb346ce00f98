"""
Which parameters have gradients in a step, and what they are called.

The order is that of the step's norms. Names are looked for only where a parameter is new.
"""

import operator
from typing import TYPE_CHECKING

from stepwarden.agent.watch import Moment

if TYPE_CHECKING:
    from torch import Tensor


class Layout:
    """The parameters of an optimizer's last step; kept no longer than the optimizer, which has them too."""

    def __init__(self) -> None:
        """Begin before the first step."""
        self.parameters: list[Tensor] = []
        self.names: list[str | None] = []
        self.called: dict[int, str | None] = {}

    def follow(self, moment: Moment) -> bool:
        """Take over a step's parameters; return whether they are others than in the step before."""
        parameters = moment.reading.parameters
        if len(parameters) == len(self.parameters) and all(map(operator.is_, parameters, self.parameters)):
            return False
        if any(id(parameter) not in self.called for parameter in parameters):
            names = moment.names()
            self.called |= {id(parameter): names.get(id(parameter)) for parameter in parameters}
        self.parameters = list(parameters)
        self.names = [self.called[id(parameter)] for parameter in parameters]
        return True
