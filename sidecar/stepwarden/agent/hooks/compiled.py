"""
Hooks of optimizers whose step is compiled: they run between two of its graphs.

Torch itself breaks the step of its own into several (`_use_grad` in torch.optim.optimizer).
A user's own may be one whole graph, asked for by `fullgraph=True`, which a hook would end with an error.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo

from stepwarden.agent.hooks.replacing import replace_attribute

WHOLE: list[bool] = []
"""Not empty once a function was compiled that must stay one graph; compiled code is guarded by it."""


def eagerly(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that is also called where the step is compiled, unless it may have to stay one graph."""

    @_disable_dynamo
    def outside(*args: Any) -> Any:
        return hook(*args)

    def either(*args: Any) -> Any:
        return None if torch.compiler.is_compiling() and WHOLE else outside(*args)

    return either


def install() -> Callable[[], None]:
    """Note whether the program wants whole graphs of its functions; return what undoes it."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def noting(model: Any = None, **options: Any) -> Any:
            if options.get("fullgraph") and model is not None and not isinstance(model, nn.Module):
                WHOLE.append(True)
            return original(model, **options)

        return noting

    put_back = replace_attribute(torch, "compile", wrap)

    def undo() -> None:
        put_back()
        WHOLE.clear()

    return undo
