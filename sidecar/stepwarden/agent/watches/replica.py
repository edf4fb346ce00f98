"""
What this rank says of each step for the hub to compare it with other ranks: a datagram, and no collective.

Evidence is only that ranks differ. What a rank sees of a missing reduction by itself explains it, no more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import torch

from stepwarden.agent.guarded import guarded
from stepwarden.agent.looks import fingerprint
from stepwarden.agent.looks.gradients import norms
from stepwarden.agent.looks.measure import Measure
from stepwarden.agent.looks.parallel import Parallel, Wrapper
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.looks.plans import Plan, measure, meet
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.agent.watches.scaling import current_scale
from stepwarden.probes import replicas
from stepwarden.probes.replicas.together import SUPPOSED
from stepwarden.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor, nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import Optimizer

    from stepwarden.agent.hooks.calls import Call

FIRST, EVERY, ON_END = 50, 20, 4  # batches are compared in the first steps, then in some on end
COMPARED = ("GradientNotSynchronized", "ReplicasDiverged", "DataRepeated")  # by nothing but other ranks
WORLD = 128  # ranks up to which each step is told; of more, each one tells less often
RATES = 8  # parameter groups whose learning rates are told
SAMPLES = 2  # single values of parameters
BY_HAND = (
    "no backward pass accumulated these gradients (torch.autograd.grad?), so none was reduced: use backward()"
)
SECOND_LOOK = 10  # the step at which parameters are compared again, before the usual period


class ReplicaWatch(Watch):
    """Gathers what is told of one step until its numbers are there."""

    kinds: ClassVar[tuple[str, ...]] = replicas.KINDS

    def __init__(self, host: Host) -> None:
        """Begin before the first wrapper."""
        super().__init__(host)
        self.ranks = host.environment.ranks
        on = host.environment.probes.probes
        self.scale_on, self.data_on, self.parameters_on, self.gradients_on = (
            kind in on for kind in replicas.KINDS
        )
        self.stride = -(-self.ranks // WORLD)
        self.run = os.urandom(4).hex()
        self.parallel = Parallel()
        self.measure = Measure()
        self.plans: WeakKeyDictionary[Optimizer, Plan] = WeakKeyDictionary()
        self.met = 0  # optimizers so far, also those that are gone
        self.drafts: dict[tuple[int, int], list[Callable[[Moment], Replica]]] = {}
        self.batch: tuple[int, str] = (0, "")  # how sure it is that this is the data, and its digest
        self.place: tuple[str, int] | None = None
        self.steps: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # of those that are called first

    def install(self) -> Iterable[Callable[[], object]]:
        """Hear of wrappers."""
        if self.ranks == 1 or not torch.distributed.is_available():
            return ()
        made = guarded(self.host, COMPARED, self.wrapped)
        return [self.parallel.install(made), self.measure.remove]

    def wrapped(self, outer: DistributedDataParallel, inner: nn.Module) -> None:
        """Note a wrapper while it is made."""
        self.parallel.wrappers.append(Wrapper(outer, inner))
        if self.scale_on:
            self.measure.watch(inner, guarded(self.host, (replicas.KINDS[0],), self.measure.accumulated))

    def forward_began(self, call: Call) -> None:
        """Look at the batch: the wrapper's input, or else that of the first call in a step."""
        if self.ranks == 1 or not self.data_on:
            return
        wrapper = self.parallel.find(call.module)
        sure = 2 if wrapper else 1
        if sure > self.batch[0]:
            steps = self.steps.get(call.module, 0)
            self.steps[call.module] = steps + 1
            look = steps < FIRST or steps % EVERY < ON_END
            self.batch = (sure, fingerprint.of_batch(call.args, call.kwargs) if look else "")
            self.place = call.place

    def forward_ended(self, call: Call, output: Any) -> None:
        """Note which way a forward pass went."""
        del output
        if self.ranks > 1 and (wrapper := self.parallel.find(call.module)):
            wrapper.called(call)

    def backward_began(self, tensors: Sequence[Tensor]) -> None:
        """Note what the wrappers mean to do in a backward pass."""
        del tensors
        for wrapper in self.parallel.wrappers:
            wrapper.backward()

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Gather what must be read before the update."""
        if self.ranks == 1:
            return ()
        plan = self.plan(moment)
        if not plan.silent and moment.count % self.stride == 0:
            each = [self.draft(moment, one) for one in (plan, plan.strays) if one is not None]
            self.drafts[id(moment.optimizer), moment.count] = each
        self.batch, self.place = (0, ""), None
        for wrapper in self.parallel.wrappers:
            wrapper.begin()
        self.measure.begin(plan.measured)
        return ()

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Tell the step, now that its numbers are there."""
        for finish in self.drafts.pop((id(moment.optimizer), moment.count), ()):
            self.host.tell(finish(moment))
        return ()

    def draft(self, moment: Moment, plan: Plan) -> Callable[[Moment], Replica]:
        """Read what the update changes; return what makes the record once the gradients' norms are there."""
        hint = next(filter(None, (wrapper.passing() for wrapper in plan.wrappers)), "") or plan.hint
        if plan.wrappers and not hint and not moment.reading.local:
            hint = BY_HAND
        bypass = next((wrapper.bypass for wrapper in plan.wrappers if wrapper.bypass), None)
        file, line = bypass or self.place or moment.reading.place or (None, None)
        scale = current_scale() if self.scale_on else None
        own, used = self.measure.read(scale, plan.measured, single=self.met == 1)
        look = self.parameters_on and (moment.due or moment.count == SECOND_LOOK)
        weights = norms([one.detach() for one in plan.parameters]) if look and plan.parameters else None
        samples = self.samples(plan, moment.count)
        inputs = "" if plan.group.startswith(SUPPOSED) else self.batch[1]
        rates = tuple(
            float(group["lr"])
            for group in moment.optimizer.param_groups[:RATES]
            if isinstance(group.get("lr"), float | int)
        )

        def finish(later: Moment) -> Replica:
            found = later.values.norms if later.values else []
            if plan.positions is not None:
                found = [found[position] for position in plan.positions]
            held = weights.tolist() if weights is not None else []
            return Replica(
                rank=self.host.environment.rank,
                run=self.run,
                step=moment.step,
                optimizer=plan.index,
                count=moment.count,
                group=plan.group,
                size=plan.size,
                why=plan.why,
                names=plan.names,
                **gradients(found if self.gradients_on else []),
                **weighed(held),
                samples=samples,
                scale=scale,
                rates=rates if self.parameters_on else (),
                inputs=inputs,
                own=float(own) if own is not None else None,
                used=float(used) if used is not None else None,
                hint=hint,
                file=file,
                line=line,
            )

        return finish

    def samples(self, plan: Plan, count: int) -> tuple[float, ...]:
        """Read single values of parameters on the host: other ones at each step, the same on all ranks."""
        if not self.parameters_on or not plan.group or not plan.parameters:
            return ()
        found = []
        for turn in range(SAMPLES):
            parameter = plan.parameters[(count * SAMPLES + turn) % len(plan.parameters)]
            if parameter.device.type != "cpu" or not parameter.is_contiguous() or not parameter.numel():
                return ()
            flat = parameter.detach().view(-1)
            found.append(float(flat[(count * 31 + turn) % flat.numel()].item()))
        return tuple(found)

    def plan(self, moment: Moment) -> Plan:
        """Return how this optimizer's steps are told, made anew where its gradients are other ones."""
        known = self.plans.get(moment.optimizer)
        ids = tuple(map(id, moment.reading.parameters))
        if known is not None and known.ids == ids and not moment.due:
            return known
        plan = Plan(index=known.index if known else self.met, ids=ids)
        self.met += known is None
        self.plans[moment.optimizer] = plan
        owned = {id(parameter): parameter for parameter in trained(moment.optimizer)}
        meet(plan, owned, moment.names(), self.parallel, self.ranks)
        measure(plan, self.measure)
        reason = "Sharded" if plan.silent else "" if plan.known else "NotDataParallel"
        for kind in COMPARED:
            self.host.unknown.pop(kind, None)
            if reason and kind in self.host.environment.probes.probes:
                self.host.unknown[kind] = reason
        return plan


def gradients(found: Sequence[float]) -> dict[str, Any]:
    """Put the norms of gradients as they are compared."""
    if not found:
        return {}
    return {
        "tensors": len(found),
        "digest": fingerprint.of_numbers(found),
        "norm": fingerprint.whole(found),
        "sketch": fingerprint.sketch(found),
    }


def weighed(found: Sequence[float]) -> dict[str, Any]:
    """Put the norms of parameters as they are compared."""
    if not found:
        return {}
    return {
        "parameters": fingerprint.of_numbers(found),
        "weight": fingerprint.whole(found),
        "weights": fingerprint.sketch(found),
    }
