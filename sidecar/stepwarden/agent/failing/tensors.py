"""Which tensors are in the frames of a traceback: names, types and shapes, and never a value of theirs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from stepwarden.agent.failing.frames import Frames

FRAMES, NAMES, ITEMS, LETTERS = (
    12,
    24,
    8,
    120,
)  # that are told at most: of a stack, a frame, a container, a name


def look(frames: Frames, is_own: Callable[[str], bool]) -> dict[str, dict[str, str]]:
    """
    Return the tensors in the innermost frames whose file is the user's own, by frame and name.

    As `{"train.py:31 in forward": {"x": "float32[8, 16]"}}`. A frame without tensors is left out.
    """
    found: dict[str, dict[str, str]] = {}
    own = [each for each in frames if is_own(each[0].f_code.co_filename)]
    for frame, line in own[-FRAMES:]:
        with suppress(Exception):  # locals may be of any type, with any behaviour
            if tensors := dict(named(frame.f_locals)):
                code = frame.f_code
                found[f"{code.co_filename}:{line} in {code.co_name}"] = tensors
    return found


def named(variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the tensors among some variables, and among the items of those that are containers."""
    left = NAMES
    for name, value in list(variables.items()):
        for place, one in items(name, value):
            if left and isinstance(one, torch.Tensor):
                left -= 1
                yield place[:LETTERS], describe(one)


def items(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the first items of a plain container."""
    if type(value) in {list, tuple}:
        yield from ((f"{name}[{place}]", item) for place, item in enumerate(value[:ITEMS]))
    elif type(value) is dict:
        yield from ((f"{name}[{key!r:.40}]", item) for key, item in list(value.items())[:ITEMS])
    else:
        yield name, value


def describe(tensor: torch.Tensor) -> str:
    """Return a tensor's type and shape, as in `float32[8, 16]`, with its device where that is not the CPU."""
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - no code of a subclass may run
        kind = str(tensor.dtype).removeprefix("torch.")
        shape, device = list(tensor.shape), str(tensor.device)
    cls = type(tensor)
    prefix = "" if cls in {torch.Tensor, torch.nn.Parameter} else f"{cls.__name__} "
    return f"{prefix}{kind}{shape}" + ("" if device == "cpu" else f" {device}")
