"""What is written down of each operator: the values that went in and came out, and where it was called."""

from __future__ import annotations

import bisect
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.agent.hooks import labels
from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.looks import names
from stepwarden.agent.trace import graph, operators
from stepwarden.agent.trace.modules import Modules
from stepwarden.agent.trace.places import Switch, as_called, callers
from stepwarden.agent.trace.values import Values, leaves, version
from stepwarden.probes.trace import Op, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn


@dataclass(slots=True, eq=False)
class Running:
    """
    An operator that has begun: its place in the list, and what it was given.

    `custom`: it runs operators of its own that autograd doesn't see. `changed` holds what it will
    change without a version saying so (a collective). `outer` is the custom one that runs it.
    """

    name: str
    index: int
    inputs: tuple[int, ...]
    given: list[tuple[Tensor, int]]
    node: int
    outer: int | None
    custom: bool
    changed: tuple[Tensor, ...]
    grad_enabled: bool


class Book:
    """All that was recorded so far."""

    def __init__(self, *, look: bool, lean: bool) -> None:
        """Begin with nothing. `lean`: only what comes from a tensor that requires a gradient."""
        self.lean = lean
        self.forward: int | None = None  # the first value of the first forward pass
        self.modules = Modules()
        self.values = Values(look=look, home=self.modules.home)
        self.switch = Switch()
        self.ops: list[Op] = []
        self.places: list[int | None] = []  # of each operator: the module that ran
        self.losses: dict[int, None] = {}
        self.closed = False  # the losses so far belong to an update that is made
        self.blocked: dict[int, tuple[int, ...]] = {}
        self.outer: int | None = None

    def begin(self, name: str, given: Any, changed: Any, *, custom: bool) -> Running | None:
        """Note what an operator is given; None where it is left out."""
        if self.lean and not custom and not any(map(self.values.traced, leaves(given))):
            return None
        inputs = operators.flowing(name, tuple(dict.fromkeys(self.read(given))))
        running = Running(
            name=name,
            index=len(self.ops),
            inputs=inputs,
            given=[(thing, version(thing)) for thing in leaves(given) if isinstance(thing, Tensor)],
            node=next_node(),
            outer=self.outer,
            custom=custom,
            changed=tuple(thing for thing in leaves(changed) if isinstance(thing, Tensor)),
            grad_enabled=torch.is_grad_enabled(),
        )
        if custom:
            self.note(Op(index=running.index, name=name, inputs=running.inputs, outputs=()))
            self.outer = running.index
        return running

    def read(self, given: Any) -> Iterator[int]:
        """Yield the values of arguments."""
        for thing in leaves(given):
            if isinstance(thing, Tensor):
                own, *written = self.values.read(thing)
                yield own
                for value in written:
                    yield self.seen_through(thing, value)
            elif (number := self.values.of_number(thing)) is not None:
                yield number

    def seen_through(self, tensor: Tensor, written: int) -> int:
        """
        Return what a tensor holds that was written to its memory by way of another one.

        Where that one had a gradient and this one has none (`out.data.copy_(x)`), the graph ends there.
        """
        known = self.values.rows[self.values.last(tensor) or 0].requires_grad
        if (known and tensor.grad_fn is not None) or not self.values.rows[written].requires_grad:
            return written
        maker = next((op for op in reversed(self.ops) if written in op.outputs), None)
        if maker is None:
            return written
        value = self.values.between()
        self.note(replace(maker, index=len(self.ops), name="data", inputs=(written,), outputs=(value,)))
        self.places[-1] = self.places[maker.index]
        return value

    def end(self, running: Running, outcome: Any) -> None:
        """Note what an operator made, and where it was called."""
        changed = rewritten(running)
        made = [self.values.wrote(tensor) for tensor in changed]
        if running.custom:  # what it returns was made inside, of what it was not given as well
            running.inputs += tuple(self.made_inside(outcome, running.inputs))
        made += self.results(running.name, outcome)
        if not made and not running.custom:
            return
        frame = sys._getframe(1)  # noqa: SLF001 - the cheap way to the caller's line
        file, line = caller(frame) or (None, None)
        off = not running.grad_enabled
        if self.lean and any(map(graph.unimplemented, (*leaves(outcome), *changed))):
            self.blocked[len(self.ops)] = running.inputs
        op = Op(
            index=running.index if running.custom else len(self.ops),
            name=as_called(running.name, frame),
            inputs=running.inputs,
            outputs=tuple(made),
            file=file,
            line=line,
            label=labels.current(),
            grad_enabled=running.grad_enabled,
            inference=torch.is_inference_mode_enabled(),
            training=self.modules.training(),
            custom=running.custom,
            inside=running.outer,
            nodes=(running.node, next_node()),
            callers=callers(frame) if running.name in operators.NUMBERS else (),
            switched=self.switch.place if off else None,
            entered=self.switch.entered(frame) if off else None,
        )
        if running.custom:
            self.ops[running.index] = op
            self.follow(running, outcome)
        else:
            self.note(op)

    def note(self, op: Op) -> None:
        """Append an operator."""
        self.ops.append(op)
        self.places.append(self.modules.current())

    def made_inside(self, outcome: Any, given: tuple[int, ...]) -> Iterator[int]:
        """Yield the values of what a custom function returned, as its own operators made them."""
        for thing in leaves(outcome):
            value = self.values.last(thing) if isinstance(thing, Tensor) else None
            if value is not None and value not in given:
                yield value

    def results(self, name: str, outcome: Any) -> Iterator[int]:
        """Yield the values of what an operator returned."""
        for thing in leaves(outcome):
            if isinstance(thing, Tensor):
                yield self.values.add(thing)
            elif name in operators.NUMBERS and not isinstance(thing, int | str | bytes):
                yield self.values.number(thing)

    def follow(self, running: Running, outcome: Any) -> None:
        """
        Note to which inputs the backward pass of a custom function gives None.

        The hook changes nothing and lives with its graph.
        """
        made = [thing for thing in leaves(outcome) if isinstance(thing, Tensor)]
        nodes = {tensor.grad_fn for tensor in made if tensor.grad_fn is not None}
        inputs = [self.values.last(tensor) for tensor, _ in running.given]
        blocked, index = self.blocked, running.index

        def note(gradients: Sequence[Tensor | None], _: object) -> None:
            if len(gradients) == len(inputs):
                lost = {value for value, gradient in zip(inputs, gradients, strict=True) if gradient is None}
                blocked[index] = tuple(value for value in lost if value is not None)

        for node in nodes:
            node.register_hook(note)

    def note_losses(self, tensors: Sequence[Tensor]) -> None:
        """Note what a backward pass starts from; of a loss made unseen, what was seen of its graph."""
        if self.closed:
            self.losses, self.closed = {}, False
        for tensor in tensors:
            if self.values.last(tensor) is not None or tensor.grad_fn is None:
                self.losses |= dict.fromkeys(self.read(tensor))
            else:
                self.losses |= dict.fromkeys(self.made_by(graph.numbers(tensor.grad_fn)))

    def made_by(self, nodes: list[int]) -> Iterator[int]:
        """Yield what the operators made that belong to some nodes of autograd (sorted)."""
        for op in self.ops:
            place = bisect.bisect_left(nodes, op.nodes[0])
            if place < len(nodes) and nodes[place] < op.nodes[1]:
                yield from op.outputs

    def trace(self, roots: Sequence[nn.Module], why: str | None) -> Trace:
        """Return it all, with names as the root modules (by default the outermost) have them."""
        roots = roots or self.modules.outermost()
        called = {id(module): names.clean(name) for root in roots for name, module in root.named_modules()}
        tensors = {id(buffer): name for name, buffer in names.buffers(roots)} | dict(names.names(roots))
        ops = tuple(
            replace(op, module=self.modules.name(place, called), blocked=self.blocked.get(op.index, ()))
            for op, place in zip(self.ops, self.places, strict=True)
        )
        values = self.values.named(tensors, called)
        return Trace(values=values, ops=ops, losses=tuple(self.losses), why=why)


def rewritten(running: Running) -> list[Tensor]:
    """Return the arguments that an operator changed in place."""
    if running.name == "set_data":
        return [tensor for tensor, _ in running.given[:1]]
    changed = {id(tensor): tensor for tensor, before in running.given if version(tensor) != before}
    return [*changed.values(), *running.changed]


def next_node() -> int:
    """Return the number that the next autograd node of this thread gets."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001 - nothing public tells
