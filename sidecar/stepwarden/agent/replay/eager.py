"""A block in which models run eagerly: nothing compiled, nothing recomputed in the backward pass."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Plain:
    """Stands for `CheckpointFunction` (reentrant): calls what it would have recomputed."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: object, *args: Any) -> Any:
        """Call the function, with its graph."""
        del preserve
        return function(*args)


def plain(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Stand for what surrounds a call that isn't reentrant: nothing before it, nothing behind it."""
    del args, kwargs
    yield


@contextmanager
def recomputing_nothing() -> Iterator[None]:
    """
    Let activation checkpointing be a plain call, so that a fault inside is seen where it is.

    `checkpoint` itself is bound to names in the user's files; what it calls is looked up here.
    """
    module: Any = checkpointing
    names = {
        "CheckpointFunction": Plain,
        "_checkpoint_without_reentrant_generator": plain,
        "_checkpoint_without_reentrant_generator_impl": plain,  # of newer ones
    }
    before = {name: getattr(module, name) for name in names if hasattr(module, name)}
    for name in before:
        setattr(module, name, names[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def eagerly(module: nn.Module) -> Iterator[None]:
    """Run eagerly. What `module.compile()` left on modules is put back by who preserves them."""
    with ExitStack() as stack:
        stance = getattr(torch.compiler, "set_stance", None)  # new in torch 2.6
        if stance is not None:
            stack.enter_context(stance("force_eager"))
        for child in module.modules():
            if vars(child).get("_compiled_call_impl") is not None:
                child._compiled_call_impl = None  # noqa: SLF001 - the way back that torch has
        stack.enter_context(recomputing_nothing())
        yield
