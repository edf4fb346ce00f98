"""
What a recording can't see by torch's own protocol, and so wraps while it lasts.

Module calls, custom autograd.Functions, collectives, and numpy's way into torch. Only the apply of
custom Functions stays wrapped between recordings where `install` was called: programs keep
references to it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import activation, transformer

from stepwarden.agent.hooks import calls
from stepwarden.agent.hooks.replacing import replace_attribute

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepwarden.agent.trace.recorder import Recorder

COLLECTIVES = {
    "allgather": ("all_gather", 1),
    "_allgather_base": ("all_gather_into_tensor", 1),
    "allgather_coalesced": ("all_gather_coalesced", 1),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor", 1),
    "allreduce": ("all_reduce", 0),
    "allreduce_coalesced": ("all_reduce_coalesced", 0),
    "broadcast": ("broadcast", 0),
    "reduce": ("reduce", 0),
    "gather": ("gather", 1),
    "scatter": ("scatter", 1),
    "reduce_scatter": ("reduce_scatter", 1),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor", 1),
    "alltoall": ("all_to_all", 1),
    "alltoall_base": ("all_to_all_single", 1),
}
"""A process group's methods: what a user calls them, and which argument they read; they write the first."""

FUSED = (activation.MultiheadAttention, transformer.TransformerEncoderLayer, transformer.TransformerEncoder)
"""Modules that take another way in evaluation when a mode is active."""

COMPILED = "compiled code was entered"

ACTIVE: list[Recorder] = []
UNDO: list[Callable[[], None]] = []


def recording() -> Recorder | None:
    """Return the recorder at work in this thread, if one is; none in what is compiled."""
    if torch.compiler.is_compiling():
        return None
    return ACTIVE[-1] if ACTIVE and ACTIVE[-1].on else None


def arm(recorder: Recorder) -> None:
    """Let a recorder be told; the first one puts the wrappers."""
    if recorder in ACTIVE:
        return
    if not ACTIVE:
        UNDO.extend((module_calls(), custom_functions(), collectives(), arrays(), compiled_code()))
    ACTIVE.append(recorder)


def disarm(recorder: Recorder) -> None:
    """Let a recorder be told no more; the last one takes the wrappers off."""
    if recorder in ACTIVE:
        ACTIVE.remove(recorder)
    while UNDO and not ACTIVE:
        UNDO.pop()()


def module_calls() -> Callable[[], None]:
    """Tell which modules run: through the agent's own wrapper, which stays, or through one for a while."""
    if getattr(nn.Module.__call__, "__stepwarden__", False):
        calls.AROUND.append(around)
        return lambda: calls.AROUND.remove(around)

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return call(module, *args, **kwargs)
            return around(call, module, args, kwargs)

        return watched

    return replace_attribute(nn.Module, "__call__", wrap)


def around(
    original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a module's call, and tell of it."""
    recorder = recording()
    if recorder is None:
        return original(module, *args, **kwargs)
    recorder.guard(recorder.book.modules.entered, module)
    try:
        if isinstance(module, FUSED) and not module.training:
            given = (args, kwargs, list(module.parameters()))
            return recorder.alone(type(module).__name__, lambda: original(module, *args, **kwargs), given)
        return original(module, *args, **kwargs)
    finally:
        recorder.guard(recorder.book.modules.left, module)


def custom_functions() -> Callable[[], None]:
    """Tell which custom autograd.Functions are applied, and by whom."""
    cls: Any = torch.autograd.Function
    if getattr(cls.apply, "__stepwarden__", False):
        return lambda: None
    original = cls.__dict__["apply"]  # of Python or of C, as torch has it

    @functools.wraps(cls.apply)
    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = recording()
        if recorder is None or torch.compiler.is_compiling():
            return original.__get__(None, function)(*args, **kwargs)
        name = "checkpoint" if function.__name__ == "CheckpointFunction" else function.__name__
        given = [thing for thing in (*args, *kwargs.values()) if isinstance(thing, torch.Tensor)]
        return recorder.run(
            name, lambda: original.__get__(None, function)(*args, **kwargs), given, custom=True
        )

    apply.__stepwarden__ = True  # type: ignore[attr-defined]  # so that it isn't wrapped twice
    cls.apply = classmethod(apply)

    def undo() -> None:
        cls.apply = original

    return undo


def collectives() -> Callable[[], None]:
    """
    Tell which collectives run.

    At the process group's own methods, as programs keep references to the functions.
    """
    if not torch.distributed.is_available():
        return lambda: None
    group: Any = torch.distributed.ProcessGroup
    originals = {method: vars(group)[method] for method in COLLECTIVES if method in vars(group)}
    for method, original in originals.items():
        setattr(group, method, collective(original, *COLLECTIVES[method]))

    def undo() -> None:
        for method, original in originals.items():
            setattr(group, method, original)

    return undo


def collective(original: Any, name: str, read: int) -> Any:
    """Wrap one method of a process group."""

    @functools.wraps(original)
    def watched(group: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = recording()
        if recorder is None or len(args) <= read or torch.compiler.is_compiling():
            return original.__get__(group)(*args, **kwargs)
        return recorder.run(name, lambda: original.__get__(group)(*args, **kwargs), args[read], args[0])

    return watched


def arrays() -> Callable[[], None]:
    """Tell what comes from numpy: torch asks no mode about it."""
    original = torch.from_numpy

    @functools.wraps(original)
    def from_numpy(array: Any) -> torch.Tensor:
        recorder = recording()
        if recorder is None:
            return original(array)
        made: torch.Tensor = recorder.run("from_numpy", lambda: original(array), (array,))
        return made

    torch.from_numpy = from_numpy  # type: ignore[assignment]  # put back

    def undo() -> None:
        torch.from_numpy = original

    return undo


def compiled_code() -> Callable[[], None]:
    """
    Stop the recording where compiled code is entered: a mode would become a part of what is compiled.

    Torch has a second name for that function, `_maybe_set_eval_frame`, which is the same one or calls it.
    """
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    original = getattr(frames, "set_eval_frame", None)
    if original is None:
        return lambda: None  # nothing was compiled so far
    names = [
        name
        for name in ("set_eval_frame", "_maybe_set_eval_frame")
        if getattr(frames, name, None) is original
    ]

    @functools.wraps(original)
    def set_eval_frame(callback: Any) -> Any:
        if callable(callback):
            for recorder in tuple(ACTIVE):
                recorder.halt(COMPILED)  # nothing of ours stands where the compiler looks
        return original(callback)

    for name in names:
        setattr(frames, name, set_eval_frame)

    def undo() -> None:
        for name in names:
            setattr(frames, name, original)

    return undo
