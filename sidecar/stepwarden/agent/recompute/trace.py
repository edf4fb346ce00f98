"""
What one run of a checkpointed part computed, operator by operator.

A function mode sees each operator of the run; it hands on what the operator returned, whatever
goes wrong here. It changes no number, draws none, and waits for no device.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stepwarden.agent.hooks.losses import OURS, TORCH
from stepwarden.agent.recompute.sample import HALF, Rows, plain, storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType, FrameType

MOST = 4000  # operators of a run that are followed
CALL = nn.Module._call_impl.__code__  # noqa: SLF001 - its frame knows the module
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"})
FILLS = frozenset(
    {
        *("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"),
        *("log_normal_", "cauchy_", "geometric_"),
    }
)
RANDOM = ("dropout", "rand", "bernoulli", "normal", "multinomial", "uniform", "exponential", "rrelu")
NORMS = ("batch_norm", "instance_norm")  # these update running statistics, see pytorch/pytorch#62471
MOMENTUM = {"batch_norm": 6, "instance_norm": 6, "batch_norm_gather_stats_with_counts": 5}  # which argument


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One tensor that an operator made, or one that it changed (`before` is the row of what it was).

    `place` is the user's line, `shape` says also the type, `used` whether backward needs it, `half`
    whether half precision came before it, `empty` the line that left memory unset which it read.
    """

    op: str
    place: tuple[str, int] | None
    module: weakref.ref[nn.Module] | None
    shape: str
    strides: tuple[int, ...]
    row: int
    used: bool
    half: bool
    before: int | None = None
    momentum: float | None = None
    empty: tuple[str, int] | None = None

    @property
    def key(self) -> tuple[str, tuple[str, int] | None, bool]:
        """What the same thing in two runs has in common."""
        return self.op, self.place, self.before is None


@dataclass(frozen=True, slots=True)
class Draw:
    """
    An operator that drew random numbers, and the state of the generator before it.

    `stopped`: what it gave is unknown, as the recomputation had what it needs.
    """

    op: str
    place: tuple[str, int] | None
    module: weakref.ref[nn.Module] | None
    state: Tensor
    stopped: bool


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was noted before an operator: what it may change (with version and row), the random state."""

    changing: tuple[tuple[Tensor, int, int], ...]
    state: Tensor | None
    device: torch.device | None = None


class Trace(TorchFunctionMode):
    """Follows one run. `until` is the code of the frame behind which the run is not its own."""

    def __init__(self, until: CodeType) -> None:
        """Begin before the run."""
        super().__init__()
        self.until = until
        self.rows = Rows()
        self.entries: list[Entry] = []
        self.inputs: set[int] = set()
        self.made: set[int] = set()
        self.unset: dict[int, tuple[str, int] | None] = {}
        self.draws: list[Draw] = []
        self.half = False
        self.failed: str | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator, and note what it made."""
        del types
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.failed or len(self.entries) >= MOST or name in {"__get__", "__set__", ""}:
            return func(*args, **kwargs)
        ahead = self.guarded(self.before, name, args, kwargs) or Ahead((), None)
        try:
            output = func(*args, **kwargs)
        except BaseException:  # a recomputation that has what it needs is stopped within an operator
            self.guarded(self.after, name, args, kwargs, None, ahead)
            raise
        self.guarded(self.after, name, args, kwargs, output, ahead)
        return output

    def guarded(self, act: Any, *arguments: Any) -> Any:
        """Do our own part: no user's mode sees it, and its error ends the trace only."""
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001 - torch's name for it
                if dispatched():
                    self.failed = "a dispatch mode is active"
                    return None
                return act(*arguments)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            self.failed = f"{type(error).__name__}: {error}"
            return None

    def begin(self, arguments: Iterator[Any]) -> None:
        """Note what the run begins with."""
        for number, tensor in enumerate(tensors(arguments)):
            self.inputs.add(storage(tensor))
            self.note(f"input {number}", tensor, None, None)

    def end(self, output: Any) -> None:
        """Note what the run gives."""
        for number, tensor in enumerate(tensors(flat((output,)))):
            self.note(f"output {number}", tensor, None, None)

    def before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Ahead:
        """Sample what an operator may change that stays when the run is over, as running statistics do."""
        given = list(tensors(flat((*args, *kwargs.values()))))
        device = next((tensor.device for tensor in given if tensor.device.type != "cpu"), None)
        state = random_state(device) if any(word in name for word in RANDOM) else None
        found = []
        for tensor in given if changes(name, kwargs) else ():
            own = storage(tensor) in self.made or storage(tensor) in self.inputs
            if not own and not tensor.requires_grad and tensor.is_floating_point():
                row = self.rows.add(tensor)
                if row is not None:
                    found.append((tensor, tensor._version, row))  # noqa: SLF001 - counts changes in place
        return Ahead(tuple(found), state, device)

    def after(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, ahead: Ahead
    ) -> None:
        """Note what an operator made and changed."""
        place, module = self.where(sys._getframe(3))  # noqa: SLF001 - the cheap way to the operator's caller
        for tensor, version, row in ahead.changing:
            # A batch norm's running statistics are changed behind the back of their version.
            if tensor._version != version or norm(name):  # noqa: SLF001 - as above
                self.note(name, tensor, place, module, before=row, momentum=momentum(name, args, kwargs))
        if ahead.state is not None and not torch.equal(ahead.state, random_state(ahead.device)):
            self.draws.append(Draw(name, place, module, ahead.state, stopped=output is None))
        inputs = {storage(tensor) for tensor in tensors(flat((*args, *kwargs.values())))}
        unset = next((self.unset[key] for key in inputs if key in self.unset), None)
        for tensor in tensors(flat((output,))):
            key = storage(tensor)
            if name in EMPTY:
                self.made.add(key)
                self.unset[key] = place
            elif key in self.unset and key in inputs and not fills(name, tensor):
                continue  # a part of it is set, and what the rest holds is nobody's matter yet
            else:
                self.unset.pop(key, None)
                if key not in inputs:
                    self.made.add(key)
                self.note(name, tensor, place, module, empty=unset)

    def note(
        self,
        name: str,
        tensor: Tensor,
        place: tuple[str, int] | None,
        module: weakref.ref[nn.Module] | None,
        **more: Any,
    ) -> None:
        """Keep a sample of a tensor."""
        row = self.rows.add(tensor)
        if row is None:
            return
        self.half = self.half or tensor.dtype in HALF
        entry = Entry(
            name,
            place,
            module,
            f"{tuple(tensor.shape)} {tensor.dtype}",
            tensor.stride(),
            row,
            used=tensor.requires_grad,
            half=self.half,
            **more,
        )
        self.entries.append(entry)

    def where(self, frame: FrameType | None) -> tuple[tuple[str, int] | None, weakref.ref[nn.Module] | None]:
        """Return the user's line and the innermost module, from the operator's caller outwards."""
        place, module = None, None
        while frame is not None and frame.f_code is not self.until and (place is None or module is None):
            if module is None and frame.f_code is CALL:
                module = weakref.ref(frame.f_locals["self"])
            elif place is None and not frame.f_code.co_filename.startswith((TORCH, OURS)):
                place = (frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return place, module


def dispatched() -> bool:
    """Whether a dispatch mode is active: it would see our own operators, and may keep count of them."""
    return bool(torch._C._len_torch_dispatch_stack())  # noqa: SLF001 - torch's own way to ask


def random_state(device: torch.device | None) -> Tensor:
    """Return the state of a device's generator, of the CPU's by default. It lies on the host."""
    if device is None:
        return torch.get_rng_state()
    state: Tensor = getattr(torch, device.type).get_rng_state(device)
    return state


def changes(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator may change one of its arguments, by its name."""
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or "out" in kwargs
    return in_place or name == "__setitem__" or norm(name)


def norm(name: str) -> bool:
    """Whether an operator may update running statistics."""
    return any(kind in name for kind in NORMS)


def momentum(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float | None:
    """Return the momentum of a norm that updates running statistics."""
    position = MOMENTUM.get(name, len(args))
    found = kwargs.get("momentum", args[position] if position < len(args) else None)
    return found if isinstance(found, float) else None


def fills(name: str, tensor: Tensor) -> bool:
    """Whether an operator has set the whole of a tensor's memory."""
    return name in FILLS and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def flat(values: tuple[Any, ...]) -> Iterator[Any]:
    """Yield arguments or results, with those in lists, tuples and dicts."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(tuple(value))
        elif isinstance(value, dict):
            yield from flat(tuple(value.values()))
        else:
            yield value


def tensors(values: Iterator[Any]) -> Iterator[Tensor]:
    """Yield those that can be sampled."""
    return (tensor for value in values if (tensor := plain(value)) is not None)
