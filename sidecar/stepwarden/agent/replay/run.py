"""A saved call, made again: eagerly, from the same random state, buffers and casts."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from stepwarden.agent.hooks import labels
from stepwarden.agent.replay import casting, eager, tree
from stepwarden.agent.replay.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from stepwarden.agent.replay.snapshot import Snapshot


class CannotReplay(Exception):  # noqa: N818 - it is an answer, with its reason
    """A call that can't be made again; the text says why."""


def refused(snapshot: Snapshot) -> str | None:
    """Say why a call can't be made again, if it can't."""
    if not snapshot.ended:
        return "its forward pass raised"
    if any(hasattr(parameter, "to_local") for parameter in snapshot.module.parameters()) or any(
        type(child).__name__ == "FullyShardedDataParallel" for child in snapshot.module.modules()
    ):
        return "its parameters are sharded, and a replay may call no collective"
    return snapshot.stale()


def again(
    snapshot: Snapshot,
    recorder: Recording | AbstractContextManager[Any] | None = None,
    leaves: dict[int, torch.Tensor] | None = None,
) -> Any:
    """
    Make a saved call once more, under `recorder`, and return its output with its graph.

    The caller keeps `preserving.preserved` around it and around what is done with the output.
    `leaves` takes the inputs that need a gradient, by their place in the arguments. Raises `CannotReplay`.
    """
    if (why := refused(snapshot)) is not None:
        raise CannotReplay(why)
    args, kwargs = inputs(snapshot, {} if leaves is None else leaves)
    if isinstance(recorder, Recording):
        recorder.called_with(args, kwargs)
    with restored(snapshot), recorder or nullcontext():
        call: Any = snapshot.module._call_impl  # noqa: SLF001 - never a compiled one
        return call(*args, **kwargs)


@contextmanager
def restored(snapshot: Snapshot) -> Iterator[None]:
    """Let all be as it was when the call began."""
    module = snapshot.module
    with torch.no_grad():
        for buffer, version, kept in snapshot.buffers:
            if kept is not None and buffer._version != version:  # noqa: SLF001 - the only count of changes
                buffer.data.copy_(kept)
    vars(module).pop("forward", None)
    if snapshot.forward is not None:
        vars(module)["forward"] = snapshot.forward
    snapshot.random.restore()
    with ExitStack() as stack:
        stack.enter_context(labels.resumed(snapshot.labels))
        stack.enter_context(casting.again(snapshot.casting))
        stack.enter_context(eager.eagerly(module))
        stack.enter_context(torch.enable_grad())
        yield


@torch.enable_grad()
def inputs(snapshot: Snapshot, leaves: dict[int, torch.Tensor]) -> tuple[Any, Any]:
    """
    Return the arguments without their history, where a wrapper would have brought them.

    They are copies, as a model may change its inputs in place; what was one tensor stays one.
    """
    home = device(snapshot.module) if snapshot.scattered else None
    made: dict[int, torch.Tensor] = {}

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            place = len(made)
            leaf = tensor.detach().to(home or tensor.device)
            if tensor.requires_grad:
                leaves[place] = leaf = leaf.detach().requires_grad_()
            made[id(tensor)] = leaf.clone()
        return made[id(tensor)]

    return tree.rebuilt(snapshot.args, fresh), tree.rebuilt(snapshot.kwargs, fresh)


def device(module: nn.Module) -> torch.device | None:
    """Return the one device that all parameters are on, None where there are several or none."""
    found = {parameter.device for parameter in module.parameters()}
    return found.pop() if len(found) == 1 else None
