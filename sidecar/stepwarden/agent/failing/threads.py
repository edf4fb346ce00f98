"""Exceptions that end a thread of the rank: Python prints them, and the rank lives on without that thread."""

import threading
from collections.abc import Callable
from typing import Any

from stepwarden.agent.hooks.replacing import replace_attribute


def install(failed: Callable[[BaseException, str], object]) -> Callable[[], object]:
    """Call a function with the exception and the thread's name before the hook that was there is called."""

    def wrap(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def hook(args: Any) -> Any:
            if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                failed(args.exc_value, args.thread.name if args.thread is not None else "a thread")
            return original(args)

        return hook

    return replace_attribute(threading, "excepthook", wrap)
