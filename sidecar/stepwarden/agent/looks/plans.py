"""With whom, and by which parameters, an optimizer's steps are compared; made anew when they change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepwarden.agent.looks import fingerprint
from stepwarden.probes.replicas.together import SUPPOSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from stepwarden.agent.looks.measure import Measure
    from stepwarden.agent.looks.parallel import Parallel, Wrapper

LATELY = 2  # boundaries without a call of a wrapper, after which it is no part of the training any more
STRAYS = 1000  # added to an optimizer's number for those of its parameters that no wrapper holds


@dataclass(slots=True, eq=False)
class Plan:
    """How an optimizer's steps are told; `strays` is the plan for parameters that no wrapper holds."""

    index: int
    ids: tuple[int, ...] = ()  # of the parameters that had a gradient when it was made
    positions: list[int] | None = None  # of the compared ones among them; None: all
    parameters: list[Tensor] = field(default_factory=list)
    measured: list[Tensor] = field(default_factory=list)
    wrappers: list[Wrapper] = field(default_factory=list)
    group: str = ""
    size: int = 0
    why: str = ""
    names: str = ""
    hint: str = ""
    silent: bool = False
    strays: Plan | None = None

    @property
    def known(self) -> bool:
        """Whether a wrapper says that there are replicas."""
        return bool(self.group) and not self.group.startswith(SUPPOSED)

    def choose(self, owned: Mapping[int, Tensor], compared: set[int], called: Mapping[int, str]) -> None:
        """Compare by these of an optimizer's parameters."""
        self.parameters = [one for key, one in owned.items() if key in compared and one.numel()]
        self.positions = [place for place, key in enumerate(self.ids) if key in compared]
        if len(self.positions) == len(self.ids):
            self.positions = None
        self.names = fingerprint.of_text(
            f"{called.get(id(one), '?')} {tuple(one.shape)}" for one in self.parameters
        )


def meet(
    plan: Plan, owned: Mapping[int, Tensor], called: Mapping[int, str], parallel: Parallel, ranks: int
) -> None:
    """Find out with whom the steps of an optimizer are compared, and by which parameters."""
    plan.wrappers, plan.size = parallel.holders(owned), ranks
    plan.silent = any(hasattr(parameter, "to_local") for parameter in owned.values())
    plain = {key for key, parameter in owned.items() if fingerprint.plain(parameter)}
    compared, outside = plain, set[int]()
    if plan.wrappers:
        compared = plain & set().union(*(wrapper.compared() for wrapper in plan.wrappers))
        outside = plain - set().union(*(wrapper.all() for wrapper in plan.wrappers))
        plan.hint = next(filter(None, (wrapper.lasting(owned, called) for wrapper in plan.wrappers)), "")
        plan.why = next(filter(None, (wrapper.relaxed() for wrapper in plan.wrappers)), "")
    elif any(wrapper.idle <= LATELY for wrapper in parallel.wrappers):
        plan.group, plan.hint = f"{SUPPOSED}0-{ranks - 1}", unwrapped(plain, called)
    groups = {wrapper.group() for wrapper in plan.wrappers}
    if len(groups) == 1 and not plan.why:
        plan.group, plan.size = groups.pop()
    plan.choose(owned, compared, called)
    if outside and plan.known:
        plan.strays = Plan(index=plan.index + STRAYS, ids=plan.ids, size=plan.size)
        plan.strays.group, plan.strays.hint = f"{SUPPOSED}{plan.group}", unwrapped(outside, called)
        plan.strays.choose(owned, outside, called)


def measure(plan: Plan, by: Measure) -> None:
    """Note which of the compared parameters are measured."""
    plan.measured = [one for one in plan.parameters if id(one) in by.watched]


def unwrapped(keys: set[int], called: Mapping[int, str]) -> str:
    """Say of parameters that nothing averages their gradients."""
    names = [called.get(key, "?") for key in keys]
    more = f" and {len(names) - 1} more parameters are" if len(names) > 1 else " is"
    return (
        f"{min(names)}{more} in no DistributedDataParallel, so nothing averages their gradients: wrap "
        "that module too, or average them by hand"
    )
