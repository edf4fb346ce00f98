"""What can't be recorded while it runs, as compiled code, is recorded in a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stepwarden.agent.replay import preserving, run, tree
from stepwarden.agent.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from stepwarden.agent.replay.snapshot import Snapshot


def compiled(module: nn.Module) -> bool:
    """Whether a part of a module is compiled."""
    return any(
        "_orig_mod" in child._modules or getattr(child, "_compiled_call_impl", None) is not None  # noqa: SLF001 - as torch names them
        for child in module.modules()
    )


def record(snapshots: Sequence[Snapshot]) -> Recorder:
    """
    Run saved calls again, and record them; the losses are those outputs to which a gradient came back.

    Raises `run.CannotReplay`.
    """
    recorder = Recorder(lean=True)
    with preserving.preserved([snapshot.module for snapshot in snapshots]), torch.enable_grad():
        for snapshot in snapshots:
            with recorder:
                output = run.again(snapshot)
            for index, tensor in enumerate(tree.tensors(output)):
                if isinstance(tensor, Tensor) and index in snapshot.gradients:
                    value = recorder.book.values.last(tensor)
                    recorder.book.losses.update({} if value is None else {value: None})
    return recorder
