"""
A replay in a file: all that one call began from, and what is expected of it.

A bundle is a pickle: loading it runs code, so only a trusted one may be loaded. The user's script is in it
as text, so that classes of `__main__` can be found again elsewhere.
"""

from __future__ import annotations

import io
import pickle
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stepwarden.agent.replay import script, tree
from stepwarden.agent.replay.randomness import Randomness
from stepwarden.agent.replay.snapshot import Snapshot, versions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepwarden.agent.replay.story import Story

LARGEST = 256 << 20  # bytes of tensors in a bundle
FORMAT = 1
FIELDS = ("op", "module", "parameter", "file", "line", "label", "cause", "largest_in", "largest_out")


class CannotSave(Exception):  # noqa: N818 - it is an answer, with its reason
    """A call that can't be put in a file; the text says why."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What was read from a file: the call, what it was blamed for, and where it was made."""

    snapshot: Snapshot
    expected: Mapping[str, Any]
    made: Mapping[str, Any]


def save(path: Path, snapshot: Snapshot, story: Story) -> None:
    """Write a call to a file. Raises `CannotSave`, and whatever pickling raises."""
    if snapshot.forward is not None:
        message = "a framework lent the model its forward for that call"
        raise CannotSave(message)
    if (size := weight(snapshot)) > LARGEST:
        message = f"its {size >> 20} MiB are more than {LARGEST >> 20} MiB"
        raise CannotSave(message)
    inner = io.BytesIO()
    torch.save(call(snapshot), inner)
    content = {
        "format": FORMAT,
        "made": {"torch": str(torch.__version__), "python": platform.python_version(), "step": snapshot.step},
        "script": script.own(),
        "expected": {name: getattr(story, name) for name in FIELDS},
        "call": torch.frombuffer(bytearray(inner.getbuffer()), dtype=torch.uint8),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    torch.save(content, unfinished)
    unfinished.rename(path)


def call(snapshot: Snapshot) -> dict[str, Any]:
    """Return what a call is made of, without its history."""
    place = {id(buffer): name for name, buffer in snapshot.module.named_buffers()}
    random = snapshot.random
    return {
        "module": snapshot.module,
        "inputs": tree.rebuilt((snapshot.args, snapshot.kwargs), alone),
        "place": snapshot.place,
        "step": snapshot.step,
        "random": (random.cpu, random.cuda, random.python, random.numpy),
        "casting": dict(snapshot.casting),
        "buffers": {
            place[id(buffer)]: kept
            for buffer, _, kept in snapshot.buffers
            if kept is not None and id(buffer) in place
        },
        "labels": snapshot.labels,
        "prefix": snapshot.prefix,
        "gradients": {index: None if it is None else it.clone() for index, it in snapshot.gradients.items()},
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def weight(snapshot: Snapshot) -> int:
    """Return the bytes of all tensors of a call."""
    module = snapshot.module
    inputs = tree.tensors((snapshot.args, snapshot.kwargs))
    found = [*module.parameters(), *module.buffers(), *inputs]
    found += [gradient for gradient in snapshot.gradients.values() if gradient is not None]
    return sum(tensor.numel() * tensor.element_size() for tensor in found)


def alone(tensor: Tensor) -> Tensor:
    """Return a tensor without its history, and without the rest of a larger memory that it is a part of."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def load(path: Path) -> Bundle:
    """Read a bundle. Runs code from it. Raises `ValueError` where it is none, and what unpickling raises."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError):  # its text is about files of another kind
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        message = "it is no bundle of this version"
        raise ValueError(message)
    if content["script"] is not None:
        script.define(*content["script"])
    inner = io.BytesIO(content["call"].numpy().tobytes())
    snapshot = read(torch.load(inner, map_location="cpu", weights_only=False))
    return Bundle(snapshot, content["expected"], content["made"])


def read(content: Mapping[str, Any]) -> Snapshot:
    """Make a call of what was read."""
    module = content["module"]
    buffers = dict(module.named_buffers())
    args, kwargs = content["inputs"]
    cpu, cuda, python, numpy = content["random"]
    snapshot = Snapshot(
        module=module,
        args=args,
        kwargs=kwargs,
        step=content["step"],
        place=content["place"],
        versions=versions(tree.tensors((args, kwargs))),
        random=Randomness(cpu, cuda if torch.cuda.is_available() else {}, python, numpy),
        casting=cast(content["casting"]),
        buffers=[(buffers[name], -1, kept) for name, kept in content["buffers"].items()],
        labels=content["labels"],
        prefix=content["prefix"],
        gradients=content["gradients"],
        ended=True,
    )
    torch.use_deterministic_algorithms(content["deterministic"])
    return snapshot


def cast(casting: Mapping[str, torch.dtype | None]) -> Mapping[str, torch.dtype | None]:
    """Return the casts of a call for where it runs now: on the CPU, if there is no accelerator."""
    if torch.cuda.is_available():
        return casting
    return {"cpu": next((dtype for dtype in casting.values() if dtype is not None), None)}
