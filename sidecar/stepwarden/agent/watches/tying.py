"""Whether parameters that were tied still are: by identity, in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

import torch
from torch import Tensor
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from stepwarden.agent.guarded import guarded
from stepwarden.agent.looks.gradients import dense
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.looks.ties import Place, Tie, Ties, existing
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.probes import parameter_untied
from stepwarden.probes.parameter_untied import Untied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.optim import Optimizer


class Tying(Watch):
    """Follows ties from their making on, and those that there are at an optimizer's first step."""

    kinds = (parameter_untied.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin before the first module is made."""
        super().__init__(host)
        self.ties = Ties()
        self.found: list[Tie] = []
        self.known: WeakSet[Optimizer] = WeakSet()

    def install(self) -> Iterable[Callable[[], object]]:
        """Follow registrations."""
        return (
            register_module_parameter_registration_hook(
                guarded(self.host, self.kinds, self.ties.parameter)
            ).remove,
            register_module_module_registration_hook(guarded(self.host, self.kinds, self.ties.module)).remove,
        )

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look at all ties."""
        parted = [(tie, places) for tie in (*self.ties.tied, *self.found) if (places := tie.parted())]
        if moment.optimizer not in self.known:
            self.known.add(moment.optimizer)
            self.found += existing(list(moment.roots()))
        if not parted:
            return ()
        records = [
            record for tie, places in parted if (record := self.untied(moment, tie, places)) is not None
        ]
        return sorted(records, key=lambda record: (record.by_hand, -record.equal))[:1]

    @torch.no_grad()
    def untied(self, moment: Moment, tie: Tie, places: list[tuple[Place, Tensor]]) -> Untied | None:
        """Describe a tie that ended, and follow it no longer. None where it is none of this optimizer's."""
        called = moment.names()
        names = [called.get(id(parameter)) for _, parameter in places]
        if not any(names):
            return None
        self.forget(tie)
        first, second = apart(places, memory=tie.memory)
        by_hand = [place for place, parameter in places if place.put is not None and place.put[0]]
        kept = any(parameter is tie.original() for _, parameter in places)
        held = {id(each) for optimizer in self.host.living() for each in trained(optimizer)}
        lines = [place.put[1] for place, _ in places if place.put is not None]
        return Untied(
            names=tuple(dict.fromkeys(name for name in names if name)),
            equal=equal(first, second),
            by_hand=len(by_hand) == 1 and kept and id(second) in held and id(first) in held,
            memory=tie.memory,
            place=next(iter(lines), None),
        )

    def forget(self, tie: Tie) -> None:
        """Follow a tie no longer, under whatever names it is known."""
        original = tie.original()
        for ties in (self.ties.tied, self.found):
            ties[:] = [
                each
                for each in ties
                if each is not tie and (original is None or each.original() is not original)
            ]


def apart(places: list[tuple[Place, Tensor]], *, memory: bool) -> tuple[Tensor, Tensor]:
    """Return two of the parameters that aren't one."""
    first = places[0][1]
    for _, second in places[1:]:
        if second is not first and (not memory or second.data_ptr() != first.data_ptr()):
            return first, second
    return first, first


def equal(first: Tensor, second: Tensor) -> float:
    """Return the part of the values that are the same, among the rows that both have."""
    one, two = dense(first.detach()), dense(second.detach())
    if one.shape[1:] != two.shape[1:] or one.device != two.device or one.is_meta or not one.dim():
        return 0.0
    rows = min(len(one), len(two))
    same: Tensor = one[:rows] == two[:rows].to(one.dtype)
    return float(same.double().mean()) if same.numel() else 0.0
