"""
Which parts' gradients vanish, step by step.

Every step costs one comparison a parameter. What vanishes for some steps in a row is looked
at in the graph of the next backward pass: whether it is reached at all, and by which ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from stepwarden.agent.looks.layout import Layout, grouped
from stepwarden.agent.looks.looking import Looking
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import vanishing_gradient
from stepwarden.probes.vanishing_gradient import RATIO, Part, Quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

NEVER = 1 << 62
ALIVE = Quiet()


@dataclass(slots=True)
class Streak:
    """How long a part's gradients have vanished, and what was found when the graph was looked at."""

    first: float
    last: float = 0.0
    steps: int = 0
    reached: bool | None = None
    bypassed: bool | None = None
    due: int = 0  # the number of steps at which to look
    wait: int = 0  # how long to wait for the next look

    def seen(self, *, reached: bool, bypassed: bool, idle: int) -> None:
        """Take over what was found: what no pass reaches begins anew, and is looked at ever more rarely."""
        self.reached, self.bypassed = reached, bypassed
        if not reached:
            self.steps, self.wait = 0, 2 * self.wait
            self.due = self.wait
        elif bypassed and self.steps < idle:
            self.due = idle
        else:
            self.due = NEVER


@dataclass(slots=True, eq=False)
class Weights:
    """
    The parameters of one optimizer's last step, by module; only modules that own a weight matrix.

    Where a bias gets gradients and the weights don't, the fault is not there: the input is zero.
    """

    layout: Layout = field(default_factory=Layout)
    modules: dict[str, list[int]] = field(default_factory=dict)
    scales: list[tuple[int, float]] = field(default_factory=list)  # index, 1 / sqrt(number of values)
    streaks: dict[str, Streak] = field(default_factory=dict)
    looking: Looking = field(default_factory=Looking)

    def follow(self, moment: Moment) -> None:
        """Keep up with which parameters have gradients."""
        if not self.layout.follow(moment):
            return
        parameters = self.layout.parameters
        modules = grouped((name, index) for index, name in enumerate(self.layout.names) if name)
        self.modules = {
            module: indices
            for module, indices in modules.items()
            if any(parameters[index].ndim > 1 for index in indices)
            and not any(hasattr(parameters[index], "to_local") for index in indices)
        }
        self.scales = [
            (index, parameters[index].numel() ** -0.5)
            for indices in self.modules.values()
            for index in indices
        ]


class Vanishing(Watch):
    """Makes a `Quiet` of each step whose numbers are there."""

    kinds = (vanishing_gradient.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first backward pass."""
        super().__init__(host)
        settings = host.environment.probes.probes[vanishing_gradient.KIND]
        self.steps, self.idle = int(settings["steps"]), int(settings["idle"])
        self.known: WeakKeyDictionary[Optimizer, Weights] = WeakKeyDictionary()
        self.asking = False

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Look at the graph, where something is in question."""
        if self.asking:
            for weights in self.known.values():
                if weights.looking.wanted:
                    weights.looking.look(tensors, weights.layout)

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Compare the sizes of the gradients."""
        weights = self.known.get(moment.optimizer)
        if weights is None:
            weights = self.known[moment.optimizer] = Weights()
        weights.follow(moment)
        if moment.values is None or not weights.scales:
            return ()
        norms = moment.values.norms
        sizes = [norms[index] * scale for index, scale in weights.scales]
        largest = max(sizes)
        if largest == 0 and is_loss(moment.values.loss):
            largest = 1.0  # a loss that no gradient comes of
        if not 0 < largest < math.inf or math.isnan(sum(sizes)):
            return ()  # of a batch without labels, of nothing to learn yet, or of a bad one
        if min(sizes) > RATIO * largest and not weights.streaks:
            return (ALIVE,)
        found = {index: size / largest for (index, _), size in zip(weights.scales, sizes, strict=True)}
        return (self.judged(weights, found),)

    def judged(self, weights: Weights, ratios: dict[int, float]) -> Quiet:
        """Count the steps of what vanishes, and ask for a look where one is due."""
        quiet = {
            module: ratio
            for module, indices in weights.modules.items()
            if (ratio := max(map(ratios.__getitem__, indices))) <= RATIO
        }
        streaks = {
            module: weights.streaks.get(module) or Streak(first=ratio, due=self.steps, wait=self.steps)
            for module, ratio in quiet.items()
        }
        for module, streak in streaks.items():
            streak.steps += 1
            streak.last = quiet[module]
        self.answered(weights, streaks)
        weights.streaks = streaks
        weights.looking.wanted = any(streak.steps >= streak.due - 1 for streak in streaks.values())
        self.asking = any(each.looking.wanted for each in self.known.values())
        return Quiet(
            parts=tuple(part(module, streak) for module, streak in streaks.items()),
            living=tuple(module for module in weights.modules if module not in quiet),
        )

    def answered(self, weights: Weights, streaks: dict[str, Streak]) -> None:
        """Note what was seen in the graph of this step."""
        looking = weights.looking
        if not looking.looked:
            return
        weighed, upstream = looking.answer()
        living = weights.layout.mask(
            index for module, indices in weights.modules.items() if module not in streaks for index in indices
        )
        for module, streak in streaks.items():
            if streak.steps >= streak.due:
                indices = weights.modules[module]
                own = weights.layout.mask(indices)
                above = [upstream.get(weights.layout.mask([index]), 0) & ~own for index in indices]
                bypassed = any(mask & living for mask in above)
                used = any(weights.layout.mask([index]) in upstream for index in indices)
                streak.seen(reached=used and bool(weighed & own), bypassed=bypassed, idle=self.idle)


def is_loss(loss: float | None) -> bool:
    """Whether there was something to learn."""
    return loss is not None and math.isfinite(loss) and loss != 0


def part(name: str, streak: Streak) -> Part:
    """Put a streak as a record."""
    return Part(
        name=name,
        steps=streak.steps,
        first=streak.first,
        last=streak.last,
        reached=streak.reached,
        bypassed=streak.bypassed,
    )
