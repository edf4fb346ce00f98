"""
Watches activation checkpointing: whether the recomputation gives what the forward pass gave.

Looked at when a part is checkpointed first, and every so many steps. `checkpoint` is replaced in its
module, so that all who call it are watched: what gets called is the same, with the same arguments.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch import nn

from stepwarden.agent.hooks.losses import caller
from stepwarden.agent.hooks.replacing import replace_attribute
from stepwarden.agent.looks.names import clean
from stepwarden.agent.recompute.compare import Compared, Difference, compare, differences
from stepwarden.agent.recompute.region import Region, parts
from stepwarden.agent.recompute.trace import Draw
from stepwarden.agent.watch import Watch
from stepwarden.probes import recompute_mismatch
from stepwarden.probes.recompute_mismatch import Differing, Recomputed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepwarden.agent.recompute.trace import Trace
    from stepwarden.agent.watch import Host, Moment

WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"  # keeps its own name for checkpoint
KNOWN = 10_000  # checkpointed parts whose last look is remembered


class Pending:
    """A comparison that is to be judged: of which part, called where and how."""

    def __init__(
        self,
        compared: Compared,
        when: tuple[int, int],
        place: tuple[str, int] | None,
        part: Any,
        *,
        preserved: bool,
    ) -> None:
        """Keep what the finding will say. `when` is the step, and the number of the forward pass."""
        self.compared, self.place, self.part, self.preserved = compared, place, part, preserved
        self.step, self.order = when

    def drawn(self) -> list[Draw]:
        """Return the operator that drew other random numbers, if one did."""
        return [self.compared.draw] if self.compared.draw is not None else []


class Recompute(Watch):
    """Follows calls of `torch.utils.checkpoint.checkpoint`."""

    kinds = (recompute_mismatch.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin."""
        super().__init__(host)
        self.settings = host.environment.probes.probes[recompute_mismatch.KIND]
        self.pending: deque[Pending] = deque(maxlen=KNOWN)
        self.looked: dict[Any, int] = {}
        self.compiled = False
        self.count = 0
        self.off = False

    def install(self) -> Iterable[Callable[[], object]]:
        """Replace `checkpoint` and its decorator; note whether something is compiled."""
        module: Any = torch.utils.checkpoint
        yield replace_attribute(module, "checkpoint", self.function)
        if hasattr(module, "_CheckpointedFunction"):
            yield replace_attribute(module._CheckpointedFunction, "__call__", self.decorated)  # noqa: SLF001 - no other way
        if hasattr(sys.modules.get(WRAPPER), "torch_utils_checkpoint"):
            yield replace_attribute(sys.modules[WRAPPER], "torch_utils_checkpoint", self.function)
        yield replace_attribute(torch, "compile", self.compiling)

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `torch.compile`."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.compiled = True
            return original(*args, **kwargs)

        return noted

    def function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `checkpoint`."""

        def checkpoint(function: Any = None, *args: Any, **kwargs: Any) -> Any:
            if function is not None and not torch.compiler.is_compiling():
                function = self.guarded(function, kwargs)
            return original(function, *args, **kwargs)

        return checkpoint

    def decorated(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the call of a function that `checkpoint` decorated (torch 2.15 and newer)."""

        def call(decorated: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                options = decorated.checkpoint_kwargs
                function = self.guarded(decorated.function, options)
                if function is not decorated.function:
                    decorated = type(decorated)(function, **options)
            return original(decorated, *args, **kwargs)

        return call

    def guarded(self, function: Any, options: Mapping[str, Any]) -> Any:
        """Return what is checkpointed in the function's place: itself, where we can't or needn't look."""
        if self.off or not torch.is_grad_enabled() or isinstance(function, Region):
            return function
        try:
            return self.watched(function, options)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            self.off = True
            self.host.lost(self.kinds, type(self).__name__, error)
            return function

    def watched(self, function: Any, options: Mapping[str, Any]) -> Any:
        """Return what follows the function, if it is time to look, else itself."""
        place = caller(sys._getframe(1))  # noqa: SLF001 - the cheap way to the caller's line
        step = self.host.step
        made_of = tuple(parts(function))
        key = (place, *(value if isinstance(value, int) else id(value) for value in made_of))
        last = self.looked.get(key)
        if last is not None and 0 <= step - last < self.settings["every"]:
            return function
        if len(self.looked) > KNOWN:
            self.looked.clear()
        self.looked[key] = step
        part = next((value for value in made_of if isinstance(value, nn.Module)), None)
        preserved = bool(options.get("preserve_rng_state", True))
        self.count += 1
        when = (step, self.count)

        def both(first: Trace, again: Trace) -> None:
            if first.failed is None and again.failed is None:
                settings = self.settings
                compared = compare(first, again, settings["tolerance"], settings["half_tolerance"])
                self.pending.append(Pending(compared, when, place, part, preserved=preserved))

        return Region(function, both, follow=not self.compiled)

    def numbers(self, moment: Moment) -> Iterable[object]:
        """Judge the comparisons whose numbers have arrived."""
        waiting = [self.pending.popleft() for _ in range(len(self.pending))]
        now = [
            each
            for each in waiting
            if each.compared.arrived and (moment.reading.on_host or each.step <= moment.step)
        ]
        self.pending.extend(each for each in waiting if each not in now)
        if not now:
            return ()
        now.sort(key=lambda each: each.order)
        found = [(each, *differences(each.compared)) for each in now]
        bad = [
            (each, difference)
            for each, values, buffers in found
            for difference in (*(values[:1] or each.drawn()), *buffers)
        ]
        names = self.names(moment) if bad else {}
        differing = tuple(self.told(each, difference, names) for each, difference in bad)
        return (Recomputed(parts=len(now), differing=differing),)

    @staticmethod
    def names(moment: Moment) -> dict[int, str]:
        """Return the names of all modules, by id."""
        return {
            id(module): clean(name)
            for root in moment.roots()
            for name, module in root.named_modules()
            if name
        }

    def told(self, each: Pending, found: Difference | Draw, names: Mapping[int, str]) -> Differing:
        """Put a difference as plain values."""
        again = found if isinstance(found, Draw) else found.pair.again
        module = again.module() if again.module is not None else None
        file, line = each.place or (None, None)
        op_file, op_line = again.place or (None, None)
        more = {} if isinstance(found, Draw) else self.measured(found)
        return Differing(
            module=names.get(id(module)) or names.get(id(each.part)),
            op=again.op.strip("_"),
            file=file,
            line=line,
            op_file=op_file,
            op_line=op_line,
            preserved=each.preserved,
            **more,
        )

    def measured(self, difference: Difference) -> dict[str, Any]:
        """Return the numbers of a difference."""
        first, again = difference.pair.first, difference.pair.again
        return {
            "share": difference.share,
            "worst": difference.worst,
            "tolerance": self.settings["half_tolerance" if again.half else "tolerance"],
            "buffer": difference.buffer,
            "shapes": (first.shape, again.shape) if difference.pair.reshaped else None,
            "unset_line": again.empty[1] if again.empty else None,
            "momentum": again.momentum,
        }
