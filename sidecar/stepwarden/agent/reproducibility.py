"""
Brings about in a rank what makes its run repeatable, before the program's first line.

Python's random numbers are seeded at once, numpy's and torch's as soon as the program has imported
them. DataLoader workers take their seeds from torch's, so theirs are repeated too. Calls that set
something else later are noted with their line, and let through: the program is the user's.
"""

import functools
import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from stepwarden.agent import importing
from stepwarden.agent.say import say
from stepwarden.reproducibility import HASH_SEED, NOTHING, Reproducibility, of_environment


@dataclass(slots=True)
class InForce:
    """
    What was asked for, and which of the program's own calls set it since.

    `calls` has for each function that sets something the last argument and the user's line,
    `hash_seed` is the environment's at the start.
    """

    asked: Reproducibility = NOTHING
    hash_seed: str | None = None
    calls: dict[str, tuple[Any, str, int]] = field(default_factory=dict)
    quiet: bool = False


IN_FORCE = InForce()


def start() -> None:
    """Read what is asked for, seed Python, and wait for numpy. Says in a line what it can't."""
    try:
        IN_FORCE.asked = asked = of_environment(os.environ)
    except ValueError as error:
        say(f"nothing is seeded: {error}")
        return
    if not asked.asked:
        return
    IN_FORCE.hash_seed = os.environ.get(HASH_SEED)
    if asked.seed is not None:
        random.seed(asked.seed)
        note(random, "seed", "random.seed")
        importing.wait(lambda: quietly(numpy), "numpy")


def torch_imported() -> None:
    """Set what is asked for in torch, which was imported just now."""
    if IN_FORCE.asked.asked:
        quietly(torch)


def quietly(act: Callable[[], None]) -> None:
    """Do one part; where it fails, say so, and let the program go on."""
    IN_FORCE.quiet = True
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a guest never breaks its host
        say(f"{act.__name__} isn't set as the run asks: {type(error).__name__}: {error}")
    finally:
        IN_FORCE.quiet = False


def numpy() -> None:
    """Seed numpy's global generator. Those of `numpy.random.default_rng` are the program's own."""
    module: Any = sys.modules["numpy"]
    module.random.seed(IN_FORCE.asked.seed)
    note(module.random, "seed", "numpy.random.seed")


def torch() -> None:
    """Set torch's seeds (of all devices), threads and algorithms."""
    module: Any = sys.modules["torch"]
    asked = IN_FORCE.asked
    if asked.seed is not None:
        module.manual_seed(asked.seed)
        note(module, "manual_seed", "torch.manual_seed")
        note(module, "seed", "torch.seed")
    if asked.threads is not None:
        module.set_num_threads(asked.threads)
        with suppress(RuntimeError):  # parallel work has begun
            module.set_num_interop_threads(asked.threads)
        note(module, "set_num_threads", "torch.set_num_threads")
    if asked.deterministic:
        module.use_deterministic_algorithms(mode=True)
        module.backends.cudnn.deterministic = True
        module.backends.cudnn.benchmark = False
        note(module, "use_deterministic_algorithms", "torch.use_deterministic_algorithms")


def note(owner: Any, name: str, called: str) -> None:
    """Wrap a function that sets something, so that the program's call of it can be named."""
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if not IN_FORCE.quiet:
            value = args[0] if args else next(iter(kwargs.values()), None)
            IN_FORCE.calls[called] = (value, *place(sys._getframe(1)))  # noqa: SLF001 - the cheap way to the line
        return original(*args, **kwargs)

    setattr(owner, name, noted)


def place(frame: FrameType | None) -> tuple[str, int]:
    """Return the nearest line outside of torch."""
    folder = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or os.devnull)  # noqa: PTH120 - runs before pathlib is there
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
