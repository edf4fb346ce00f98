"""How torch's functions and methods are wrapped: in place of an attribute, and taken off again."""

import functools
from collections.abc import Callable
from typing import Any


def replace_attribute(owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> Callable[[], None]:
    """
    Put a wrapper in the place of an attribute; return what puts the original back.

    `wrap` makes the wrapper of the original. Whoever has replaced it since then is left in place.
    """
    original = getattr(owner, name)
    wrapper = functools.wraps(original)(wrap(original))
    setattr(owner, name, wrapper)

    def undo() -> None:
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return undo
