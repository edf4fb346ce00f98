"""
Parameters that get gradients and are in no optimizer.

Many are left out on purpose, so what makes it a mistake is looked for: what the optimizer has in
their place, and what was there when it was made.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from stepwarden.agent.guarded import guarded
from stepwarden.agent.hooks.registrations import Registrations
from stepwarden.agent.looks import names
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.looks.strangers import Stranger, stale, strangers
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import parameter_not_updated
from stepwarden.probes.parameter_not_updated import Strangers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.weak import TensorWeakRef

    from stepwarden.agent.hooks.calls import Call

CALLED = 64  # modules whose calls are remembered
WATCHED = 64  # frozen parameters that are asked in every step whether they still are


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """What there was when an optimizer was made: the number of registrations, and who was frozen."""

    count: int
    frozen: frozenset[int]


class Ownership(Watch):
    """Looks at the first step, every few steps, and whenever something is registered or unfrozen."""

    kinds = (parameter_not_updated.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first module is made."""
        super().__init__(host)
        self.registrations = Registrations()
        self.made: WeakKeyDictionary[Optimizer, Made] = WeakKeyDictionary()
        self.called: dict[int, weakref.ref[nn.Module]] = {}
        self.frozen: list[TensorWeakRef] = []
        self.looked: WeakKeyDictionary[Optimizer, tuple[int, bool]] = WeakKeyDictionary()
        self.said: frozenset[int] = frozenset()

    def install(self) -> Iterable[Callable[[], object]]:
        """Follow registrations."""
        return self.registrations.install(functools.partial(guarded, self.host, self.kinds))

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Note what there is."""
        frozen = self.registrations.frozen()
        self.registrations.count += 1
        self.made[optimizer] = Made(self.registrations.count, frozen)
        living = [reference for key, (reference, _) in self.registrations.parameters.items() if key in frozen]
        self.frozen = living[:: max(1, -(-len(living) // WATCHED))]

    def forward_began(self, call: Call) -> None:
        """Note which modules are called from outside of modules."""
        if id(call.module) not in self.called and len(self.called) < CALLED:
            self.called[id(call.module)] = weakref.ref(call.module)

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look, where it is time or something changed."""
        thawed = any(parameter.requires_grad for each in self.frozen if (parameter := each()) is not None)
        state = (self.registrations.count, thawed)
        if not moment.due and self.looked.get(moment.optimizer) == state:
            return ()
        self.looked[moment.optimizer] = state
        moment.names()  # looks for the roots again, where the optimizer has what none of them has
        held = frozenset(
            id(each) for optimizer in (*self.host.living(), moment.optimizer) for each in trained(optimizer)
        )
        roots = self.roots(moment)
        found = self.reasons(moment, roots, held, [*strangers(roots, held)])
        return self.record(moment, roots, found)

    def roots(self, moment: Moment) -> list[nn.Module]:
        """Return the root modules of the optimizer's parameters, and other modules that were called."""
        roots = list(moment.roots())
        inside = {id(module) for root in roots for module in root.modules()}
        for reference in tuple(self.called.values()):
            module = reference()
            if module is not None and id(root := names.unwrapped(module)) not in inside:
                roots.append(root)
                inside |= {id(each) for each in root.modules()}
        return roots

    def reasons(
        self, moment: Moment, roots: Sequence[nn.Module], held: frozenset[int], found: Sequence[Stranger]
    ) -> dict[str, list[Stranger]]:
        """Sort strangers by what makes them a mistake; those that may be meant are under the empty string."""
        sorted_: dict[str, list[Stranger]] = {}
        if not found:
            return sorted_
        replaced = stale(moment, roots)
        for each in found:
            made = self.holders(each.path[0])
            if replaced.lost:
                why = "stale"
            elif replaced.elsewhere and (not moment.reading.parameters or each.kin(replaced.kinds)):
                why = "elsewhere"
            elif each.hidden:
                why = "loose"
            elif made and self.late(each, held, max(one.count for one in made)):
                why = "late"
            elif made and all(id(each.parameter) in one.frozen for one in made):
                why = "unfrozen"
            else:
                why = ""
            sorted_.setdefault(why, []).append(each)
        return sorted_

    def holders(self, root: nn.Module) -> list[Made]:
        """Return what there was when the optimizers of a root module's parameters were made."""
        ids = {id(parameter) for parameter in root.parameters()}
        return [
            made
            for optimizer, made in self.made.items()
            if any(id(parameter) in ids for parameter in trained(optimizer))
        ]

    def late(self, stranger: Stranger, held: frozenset[int], made: int) -> bool:
        """Whether a parameter, or the part of the model that is in no optimizer with it, was added later."""
        for module in stranger.path:
            if not any(id(parameter) in held for parameter in module.parameters()):
                when = self.registrations.modules.get(module)
                return when is not None and when > made
        when = self.registrations.when(stranger.parameter)
        return when is not None and when > made

    def record(
        self, moment: Moment, roots: Sequence[nn.Module], found: Mapping[str, list[Stranger]]
    ) -> Iterable[object]:
        """Say the gravest reason, once for the same parameters."""
        why = next((reason for reason in parameter_not_updated.REASONS if found.get(reason)), "")
        chosen = found.get(why, [])
        ids = frozenset(id(each.parameter) for each in chosen)
        if ids <= self.said and ids:
            return ()
        if why:
            self.said |= ids
        replaced = stale(moment, roots)
        return (
            Strangers(
                count=len(chosen),
                why=why,
                names=tuple(each.name for each in chosen),
                stale=replaced.lost + replaced.elsewhere,
            ),
        )
