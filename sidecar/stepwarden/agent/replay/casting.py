"""The autocast state of a call, and a block in which it holds again without touching the casts' cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch

Casting = Mapping[str, torch.dtype | None]


def devices() -> tuple[str, ...]:
    """Return the kinds of devices that autocast is asked for."""
    accelerator = getattr(torch, "accelerator", None)  # new in torch 2.6
    current = accelerator.current_accelerator() if accelerator is not None else None
    kinds = {"cpu", "cuda"}
    if current is not None and torch.amp.is_autocast_available(current.type):
        kinds.add(current.type)
    return tuple(sorted(kinds))


DEVICES = devices()


def take() -> Casting:
    """Return the type that is cast to by kind of device, None where it is off."""
    return {
        kind: torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None for kind in DEVICES
    }


@contextmanager
def again(casting: Casting) -> Iterator[None]:
    """
    Cast as it was.

    Without the cache: a cast that is kept there would be found by the user's next forward pass,
    which may come after the update.
    """
    with ExitStack() as stack:
        for kind, dtype in casting.items():
            if dtype is not None or torch.is_autocast_enabled(kind):
                to = dtype or torch.get_autocast_dtype(kind)
                on = dtype is not None
                stack.enter_context(torch.autocast(kind, dtype=to, enabled=on, cache_enabled=False))
        yield
