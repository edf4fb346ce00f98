"""
The course of a training: each step's loss and gradient norm beside those of the steps before.

Costs two short tuples a step; parameters are named only where a norm is high.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torch import Tensor

from stepwarden.agent.looks.layout import ADAPTER, Layout
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import exploding_gradient, loss_spike
from stepwarden.probes.history import Course, Peak, Remembered

if TYPE_CHECKING:
    from torch.optim import Optimizer

HIGH = 2.0  # times the highest norm so far: the worst parameter is named


class Past:
    """What is remembered of one optimizer."""

    def __init__(self) -> None:
        """Begin before its first step."""
        self.loss, self.norm = Remembered(), Remembered()
        self.layout = Layout()
        self.adapters: list[int] = []

    def follow(self, moment: Moment) -> None:
        """Keep up with which parameters have gradients."""
        if self.layout.follow(moment):
            self.adapters = [
                index for index, name in enumerate(self.layout.names) if name and ADAPTER.search(name)
            ]

    def peak(self, norms: Sequence[float], chosen: Iterable[int]) -> Peak | None:
        """Return the parameter with the largest norm, of those that are chosen."""
        worst = max(chosen, key=norms.__getitem__, default=None)
        return None if worst is None else Peak(name=self.layout.names[worst], norm=norms[worst])


class CourseWatch(Watch):
    """Makes a `Course` of each step whose numbers are there."""

    kinds = (exploding_gradient.KIND, loss_spike.KIND)

    def __init__(self, host: Host) -> None:
        """Begin before the first backward pass."""
        super().__init__(host)
        self.pasts: WeakKeyDictionary[Optimizer, Past] = WeakKeyDictionary()
        self.passes = 0
        self.counted: dict[int, int] = {}  # backward passes, by id of a moment whose numbers are awaited

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Count the backward passes whose loss is summed up, anew behind a step that a scaler skipped."""
        if self.host.losses.total is None:
            self.passes = 0
        for tensor in tensors:
            size = getattr(tensor, "numel", None)  # a GradientEdge has none
            if size is not None and size() == 1:
                self.passes += 1
                break

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Note how many backward passes a step had."""
        self.counted[id(moment)], self.passes = self.passes, 0
        return ()

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Put the step beside those before."""
        passes = self.counted.pop(id(moment), 0)
        past = self.pasts.get(moment.optimizer)
        if past is None:
            past = self.pasts[moment.optimizer] = Past()
        past.follow(moment)
        values = moment.values
        if values is None:
            return ()
        loss = None if values.loss is None else values.loss / max(passes, 1)
        norm = values.gradient_norm
        high = norm is not None and norm > HIGH * past.norm.highest
        return (
            Course(
                loss=past.loss.series(loss),
                norm=past.norm.series(norm),
                peak=past.peak(values.norms, range(len(values.norms))) if high else None,
                adapter=past.peak(values.norms, past.adapters),
            ),
        )
