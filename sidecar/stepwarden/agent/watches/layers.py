"""
The table of layers for the report: what is trainable, and which gradients it gets.

Noted by the first rank at two steps, as adapters have zero gradients at step 0 (their B is zero then).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from stepwarden.agent.watch import Moment, Watch
from stepwarden.wire import Note

STEPS = (1, 10)
ROWS = 400  # in one message: it must fit a datagram


class Layers(Watch):
    """Notes each module that has parameters of its own: how many, how many trainable, their gradient."""

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Note the table, if it is time."""
        if moment.count in STEPS and self.host.environment.rank == 0:
            table = rows(moment)
            for first in range(0, len(table), ROWS):
                part = dict(list(table.items())[first : first + ROWS])
                self.host.tell(Note(rank=0, topic="layers", body={"step": moment.count, "rows": part}))
        return ()


def rows(moment: Moment) -> Mapping[str, Any]:
    """Return, by layer: the number of parameters, of trainable ones, and the L2 norm of their gradients."""
    called = moment.names()
    found: dict[str, list[Any]] = {}
    norms = moment.values.norms if moment.values else []
    for root in moment.roots():
        for parameter in root.parameters():
            name = called.get(id(parameter))
            if name is not None:
                row = found.setdefault(name.rpartition(".")[0], [0, 0, None])
                row[0] += parameter.numel()
                row[1] += parameter.numel() if parameter.requires_grad else 0
    for key, norm in zip(map(id, moment.reading.parameters), norms, strict=False):
        layer = called.get(key, "").rpartition(".")[0]
        if key in called and layer in found:
            before = found[layer][2]
            found[layer][2] = norm if before is None else math.hypot(before, norm)
    return found
