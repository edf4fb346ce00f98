"""The mode that records operators: it stands between the user's code and torch, and runs each one once."""

from __future__ import annotations

import bisect
import os
import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from stepwarden.agent import labels, names
from stepwarden.agent.losses import caller
from stepwarden.agent.trace import graph, operators, patches, standing
from stepwarden.agent.trace.modules import Modules
from stepwarden.agent.trace.places import Switch
from stepwarden.agent.trace.values import Values, leaves, version
from stepwarden.probes.trace import Op, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

LIMIT = 100_000  # operators


@dataclass(slots=True, eq=False)
class Running:
    """
    An operator that has begun: its place in the list, and what it was given.

    `custom`: it runs operators of its own that autograd doesn't see. `changed` holds what it will
    change without a version saying so (a collective).
    """

    name: str
    index: int
    inputs: tuple[int, ...]
    given: list[tuple[Tensor, int]]
    node: int
    inside: int | None
    custom: bool
    changed: tuple[Tensor, ...]
    grad_enabled: bool


class Recorder(TorchFunctionMode):
    """
    Records what runs within `with recorder:`, in this thread.

    `look`: also read NaN, Inf and magnitudes of what goes in and out (waits for the device). It can be
    `paused`. `why` says why it went off.
    """

    def __init__(self, *, look: bool = False, limit: int = LIMIT) -> None:
        """Begin with nothing recorded."""
        super().__init__()
        self.values = Values(look=look)
        self.modules = Modules()
        self.switch = Switch()
        self.ops: list[Op] = []
        self.places: list[int | None] = []  # of each operator: the module that ran
        self.losses: dict[int, None] = {}
        self.blocked: dict[int, tuple[int, ...]] = {}
        self.limit = limit
        self.thread, self.process = threading.get_ident(), os.getpid()
        self.paused = False
        self.passing = False  # a backward pass that comes back here
        self.why: str | None = None
        self.failed = False
        self.container: int | None = None

    def __enter__(self) -> Recorder:  # noqa: PYI034 - Python 3.10 has no Self
        """Begin to record."""
        self.put_on()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.take_off()

    def put_on(self) -> None:
        """Begin to record, without a block."""
        patches.arm(self)
        standing.put_on(self)

    def take_off(self) -> None:
        """Stop, and keep nothing of the user's alive."""
        standing.take_off(self)
        patches.disarm(self)
        self.values.numbers.clear()

    def resume(self, module: nn.Module) -> None:
        """Go on recording at the beginning of an outermost module call, without a block."""
        self.modules.running.clear()
        self.paused = self.passing = False
        if not standing.stands(self):
            self.put_on()
        self.modules.entered(module)

    def halt(self, why: str) -> None:
        """Go off for good, also within the user's code."""
        self.stop(why)
        self.take_off()

    @property
    def on(self) -> bool:
        """Whether what runs now is recorded."""
        return (
            self.why is None
            and not self.paused
            and threading.get_ident() == self.thread
            and os.getpid() == self.process
            and not torch._C._are_functorch_transforms_active()  # noqa: SLF001 - nothing public tells
        )

    def stop(self, why: str) -> None:
        """Go off."""
        self.why = self.why or why

    def guard(self, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call one of the recorder's own functions: its error ends the recording, and nothing else."""
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - what torch's own modes use
                return act(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            self.failed = True
            self.stop(f"{type(error).__name__}: {error}")
            return None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator of the user's, and record it."""
        del types
        kwargs = kwargs or {}
        if not self.on or (name := operators.short(function)) in operators.SILENT:
            return function(*args, **kwargs)
        if name == "backward":
            return self.backward(lambda: function(*args, **kwargs))
        if name == "set_grad_enabled":
            self.guard(self.switch.turned, on=bool(args and args[0]))
            return function(*args, **kwargs)
        return self.run(name, lambda: function(*args, **kwargs), (args, kwargs))

    def backward(self, call: Callable[[], Any]) -> Any:
        """Let a backward pass run unseen: what it recomputes was recorded already."""
        self.paused = self.passing = True
        try:
            return call()
        finally:
            self.paused = self.passing = False

    def run(
        self, name: str, call: Callable[[], Any], given: Any, changed: Any = (), *, custom: bool = False
    ) -> Any:
        """Run `call` once and record it. `given` and `changed` are nested in lists, tuples and dicts."""
        running: Running | None = self.guard(self.begin, name, given, changed, custom=custom)
        try:
            outcome = call()
        finally:
            if running is not None:
                self.container = running.inside
        if running is not None and self.on:
            self.guard(self.end, running, outcome)
        return outcome

    def alone(self, name: str, call: Callable[[], Any], given: Any) -> Any:
        """Run and record something that would take another way if it saw a mode."""

        def unseen() -> Any:
            with standing.without(self):
                return call()

        return self.run(name, unseen, given)

    def apply(self, name: str, call: Callable[[], Any], given: list[Tensor]) -> Any:
        """Run and record a custom autograd.Function; note to which inputs its backward gives None."""
        index = len(self.ops)
        outcome = self.run(name, call, given, custom=True)
        if self.on and index < len(self.ops):
            self.guard(self.follow, index, given, outcome)
        return outcome

    def follow(self, index: int, given: list[Tensor], outcome: Any) -> None:
        """Watch the backward pass of a custom function. The hook changes nothing and lives with its graph."""
        made = [thing for thing in leaves(outcome) if isinstance(thing, Tensor)]
        nodes = {tensor.grad_fn for tensor in made if tensor.grad_fn is not None}
        inputs = [self.values.last(tensor) for tensor in given]

        def note(gradients: Sequence[Tensor | None], _: object) -> None:
            if len(gradients) == len(inputs):
                lost = {value for value, gradient in zip(inputs, gradients, strict=True) if gradient is None}
                self.blocked[index] = tuple(value for value in lost if value is not None)

        for node in nodes:
            node.register_hook(note)

    def begin(self, name: str, given: Any, changed: Any, *, custom: bool) -> Running:
        """Note what an operator is given."""
        if len(self.ops) >= self.limit:
            self.stop(f"more than {self.limit} operators")
        ids: dict[int, None] = {}
        tensors: dict[int, Tensor] = {}
        for thing in leaves(given):
            if isinstance(thing, Tensor):
                tensors[id(thing)] = thing
                ids.update(dict.fromkeys(self.values.read(thing)))
            elif (number := self.values.of_number(thing)) is not None:
                ids[number] = None
        running = Running(
            name=name,
            index=len(self.ops),
            inputs=operators.flowing(name, tuple(ids)),
            given=[(tensor, version(tensor)) for tensor in tensors.values()],
            node=next_node(),
            inside=self.container,
            custom=custom,
            changed=tuple(thing for thing in leaves(changed) if isinstance(thing, Tensor)),
            grad_enabled=torch.is_grad_enabled(),
        )
        if custom:
            self.note(Op(index=running.index, name=name, inputs=running.inputs, outputs=()))
            self.container = running.index
        return running

    def end(self, running: Running, outcome: Any) -> None:
        """Note what an operator made, and where it was called."""
        made = [self.values.wrote(tensor) for tensor in rewritten(running)]
        if running.custom:  # what it returns was made inside, of what it was not given as well
            running.inputs += tuple(self.made_inside(outcome, running.inputs))
        made += self.results(running.name, outcome)
        if not made and not running.custom:
            return
        frame = sys._getframe(1)  # noqa: SLF001 - the cheap way to the caller's line
        file, line = caller(frame) or (None, None)
        off = not running.grad_enabled
        op = Op(
            index=running.index if running.custom else len(self.ops),
            name=running.name,
            inputs=running.inputs,
            outputs=tuple(made),
            file=file,
            line=line,
            label=labels.current(),
            grad_enabled=running.grad_enabled,
            inference=torch.is_inference_mode_enabled(),
            custom=running.custom,
            inside=running.inside,
            nodes=(running.node, next_node()),
            switched=self.switch.place if off else None,
            entered=self.switch.entered(frame) if off else None,
        )
        if running.custom:
            self.ops[running.index] = op
        else:
            self.note(op)

    def made_inside(self, outcome: Any, given: tuple[int, ...]) -> Iterator[int]:
        """Yield the values of what a custom function returned, as its own operators made them."""
        for thing in leaves(outcome):
            value = self.values.last(thing) if isinstance(thing, Tensor) else None
            if value is not None and value not in given:
                yield value

    def note(self, op: Op) -> None:
        """Append an operator."""
        self.ops.append(op)
        self.places.append(self.modules.current())

    def results(self, name: str, outcome: Any) -> Iterator[int]:
        """Yield the values of what an operator returned."""
        for thing in leaves(outcome):
            if isinstance(thing, Tensor):
                yield self.values.add(thing)
            elif name in operators.NUMBERS and not isinstance(thing, int | str | bytes):
                yield self.values.number(thing)

    def backward_from(self, tensors: Sequence[Tensor]) -> None:
        """Stand before a backward pass, and note what it starts from; none that a backward pass makes."""
        if self.why is not None or (self.paused and not self.passing):
            return
        if not self.passing:  # not through the mode: nothing tells when it ends
            self.paused = True
            standing.take_off(self)
        self.passing = False
        self.guard(lambda: self.losses.update(dict.fromkeys(self.origins(tensors))))

    def origins(self, tensors: Sequence[Tensor]) -> Iterator[int]:
        """Yield the losses' values; of a loss that was made unseen, what was seen of the graph below it."""
        for tensor in tensors:
            value = self.values.last(tensor) if isinstance(tensor, Tensor) else None
            if value is not None:
                yield value
            elif isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                numbers = graph.numbers(tensor.grad_fn)
                for op in self.ops:
                    place = bisect.bisect_left(numbers, op.nodes[0])
                    if place < len(numbers) and numbers[place] < op.nodes[1]:
                        yield from op.outputs

    def trace(self, roots: Sequence[nn.Module] = ()) -> Trace:
        """Return what was recorded, with names as the root modules (by default the outermost) have them."""
        roots = roots or self.modules.outermost()
        called = {id(module): names.clean(name) for root in roots for name, module in root.named_modules()}
        tensors = {id(buffer): name for name, buffer in names.buffers(roots)} | dict(names.names(roots))
        ops = tuple(
            replace(op, module=self.modules.name(place, called), blocked=self.blocked.get(op.index, ()))
            for op, place in zip(self.ops, self.places, strict=True)
        )
        return Trace(values=self.values.named(tensors), ops=ops, losses=tuple(self.losses), why=self.why)


def rewritten(running: Running) -> list[Tensor]:
    """Return the arguments that an operator changed in place."""
    if running.name == "set_data":
        return [tensor for tensor, _ in running.given[:1]]
    return [tensor for tensor, before in running.given if version(tensor) != before] + list(running.changed)


def next_node() -> int:
    """Return the number that the next autograd node of this thread gets."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001 - nothing public tells
