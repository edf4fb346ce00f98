"""Hooks that torch calls by itself: an error of theirs switches off what it was for, and reaches nobody."""

import functools
from collections.abc import Callable, Collection
from typing import Any

from stepwarden.agent.watch import Host


def guarded(host: Host, kinds: Collection[str], function: Callable[..., object]) -> Callable[..., None]:
    """Return a function that calls another one, gives nothing back, and raises nothing."""
    failed = False

    @functools.wraps(function)
    def hook(*args: Any) -> None:
        nonlocal failed
        if failed:
            return
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            failed = True
            host.lost(kinds, function.__name__, error)

    return hook
