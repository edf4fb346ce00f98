"""
What moves parameters: the optimizer's update, and what else.

A few elements of each parameter are kept from before and behind each update. On accelerators
comparing them waits for the device, so it is done only where the step's numbers are waited for.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from stepwarden.agent.guarded import guarded
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.looks.sampling import Sample
from stepwarden.agent.looks.updates import Updates, rate
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.agent.watches.intrusion import Intrusion, Occasions
from stepwarden.probes import parameter_changed_outside_step, parameter_not_updated, update_wrong_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer

    from stepwarden.probes.parameter_not_updated import Still
    from stepwarden.probes.update_wrong_size import Sizes

EARLY, EVERY = 8, 20  # updates at the beginning that are looked at, and one of so many later
SUSPECT = 0.2  # part of elements that move: where it's less, the parameters' names are looked for
LARGE, SMALL = 0.5, 1e-6  # of the weights: where an update is more, or none ever was, the same
SHOWN = 8  # names


class Course:
    """One optimizer's parameters around its updates."""

    def __init__(self, parameters: list[Tensor], occasions: Occasions) -> None:
        """Begin before the first update."""
        self.count = len(parameters)
        self.sample = Sample(parameters)
        self.ids = frozenset(map(id, parameters))
        self.updates = Updates(self.sample)
        self.intrusion = Intrusion(occasions, parameters)
        self.last: Tensor | None = None  # before the last update, as `before` is that of the next one
        self.before: Tensor | None = None
        self.after: Tensor | None = None
        self.disturbed = False

    def update(self) -> Tensor | None:
        """Return what the last update added, asked at the boundary of the next one."""
        if self.last is None or self.after is None or self.last.shape != self.after.shape:
            return None
        return self.after - self.last


class Movement(Watch):
    """Compares a few elements of each parameter around each update."""

    kinds = (parameter_changed_outside_step.KIND, parameter_not_updated.KIND, update_wrong_size.KIND)

    def __init__(self, host: Host) -> None:
        """Begin before the first update."""
        super().__init__(host)
        self.courses: WeakKeyDictionary[Optimizer, Course] = WeakKeyDictionary()
        self.occasions = Occasions()

    def install(self) -> Iterable[Callable[[], object]]:
        """Note loads and evaluations."""
        return self.occasions.install(functools.partial(guarded, self.host, self.kinds))

    def course(self, moment: Moment) -> Course | None:
        """Return what is known of an optimizer; None where looking would wait."""
        course = self.courses.get(moment.optimizer)
        count = sum(len(group["params"]) for group in moment.optimizer.param_groups)
        if course is None or course.count != count:
            course = self.courses[moment.optimizer] = Course(trained(moment.optimizer), self.occasions)
        first = next(iter(course.sample.parameters), None)
        if first is None or first.device.type == "cpu" or self.host.environment.waits(on_host=False):
            return course if first is not None else None
        self.host.unknown |= dict.fromkeys(self.kinds[:1] + self.kinds[2:], "Deferred")
        return None

    @torch.no_grad()
    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look what changed since the update before."""
        course = self.course(moment)
        if course is None:
            return ()
        now = course.sample.take()
        after, course.before, course.last = course.after, now, course.before
        if now is None or after is None or now.shape != after.shape or course.disturbed:
            return ()
        found = course.intrusion.look(moment, course.sample, course.update, after, now)
        return () if found is None else (found,)

    def disturb(self, course: Course) -> None:
        """Tell other optimizers that have some of these parameters that they were updated."""
        for other in self.courses.values():
            if other is not course and not course.ids.isdisjoint(other.ids):
                other.disturbed = True
        course.disturbed = False

    @torch.no_grad()
    def stepped(self, moment: Moment) -> Iterable[object]:
        """Look what the update changed."""
        course = self.course(moment)
        if course is None:
            return ()
        before, after = course.before, course.sample.take()
        course.after = after
        self.disturb(course)
        course.intrusion.note(moment.optimizer)
        if before is None or after is None or before.shape != after.shape:
            return ()
        return self.measured(moment, course, before, after)

    @staticmethod
    def measured(moment: Moment, course: Course, before: Tensor, after: Tensor) -> Iterable[object]:
        """Measure an update where it is time for that, or where the learning rate is zero."""
        updates, fastest = course.updates, rate(moment.optimizer)
        updates.idle = updates.idle + 1 if fastest == 0 and torch.equal(before, after) else 0
        if moment.count >= EARLY and moment.count % EVERY and updates.idle <= 1:
            return ()
        found = updates.look(before, after, scaled=moment.reading.scaled)
        return () if found is None else placed(moment, updates, *found)


def placed(moment: Moment, updates: Updates, sizes: Sizes, still: Still) -> tuple[object, ...]:
    """Give two records the learning rate, and names where they may be needed."""
    fastest = rate(moment.optimizer)
    odd = bool(sizes.medians) and (sizes.medians[-1] > LARGE or sizes.highest < SMALL)
    slow = updates.idle > 1 or still.moved <= SUSPECT * still.of or (still.low or 1.0) < SUSPECT
    called = moment.names() if odd or (slow and still.looks > 1) else {}
    names = [name for each in updates.sample.parameters if (name := called.get(id(each))) is not None]
    worst = called.get(id(updates.worst)) if updates.worst is not None else None
    return replace(sizes, rate=fastest, name=worst), replace(
        still, rate=fastest, names=tuple(names[:SHOWN]), dtype=updates.dtype
    )
