"""The calls that clip gradients: torch's own functions, wrapped where programs take them from, and undone."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad

from stepwarden.agent.hooks.losses import caller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Place = tuple[str, int]
    Clipped = Callable[[Sequence[Tensor], Any, Any, Place | None], None]

LIMITS = {
    "clip_grad_norm_": "max_norm",
    "clip_grads_with_norm_": "max_norm",
    "clip_grad_value_": "clip_value",
}


def install(wanted: Callable[[], bool], clipped: Clipped) -> Callable[[], None]:
    """
    Tell `clipped` of each call, behind it: the parameters, the limit, the norm before (if known), the place.

    Only while `wanted`. Neither may raise. Returns what undoes it.
    """
    undo: list[tuple[Any, str, Any, Any]] = []
    for name, limit in LIMITS.items():
        original = getattr(nn.utils, name, None)
        if original is None:
            continue  # an older torch has no clipping by a given norm
        wrapper = watched(original, limit, wanted, clipped)
        for owner in (nn.utils, clip_grad):
            if getattr(owner, name, None) is original:
                undo.append((owner, name, original, wrapper))
                setattr(owner, name, wrapper)

    def take_off() -> None:
        for owner, name, original, wrapper in undo:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)

    return take_off


def watched(
    original: Callable[..., Any], limit: str, wanted: Callable[[], bool], clipped: Clipped
) -> Callable[..., Any]:
    """Wrap one of them. What can be gone through only once is made a list first."""

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not wanted():
            return original(parameters, *args, **kwargs)
        several = not isinstance(parameters, Tensor)
        if several:
            parameters = list(parameters)
        outcome = original(parameters, *args, **kwargs)
        norm = outcome if isinstance(outcome, Tensor) else (args[1] if len(args) > 1 else None)
        place = caller(sys._getframe(1))  # noqa: SLF001 - the cheap way to the caller's line
        clipped(parameters if several else [parameters], args[0] if args else kwargs.get(limit), norm, place)
        return outcome

    return clip
