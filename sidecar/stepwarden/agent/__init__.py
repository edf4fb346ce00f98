"""
The agent: lives in the rank's own process, and must never be the reason it dies.

`start` is called by the injected sitecustomize; `attach` attaches at once, for who wants the
handle. Importing this package imports no torch.
"""

import os
from typing import TYPE_CHECKING

from stepwarden.agent import importing, reproducibility
from stepwarden.agent.failing import last
from stepwarden.agent.saving import resume
from stepwarden.agent.say import say

if TYPE_CHECKING:
    from stepwarden.agent.attach import Attached

__all__ = ["attach", "start"]

OLDEST = (2, 4)  # of torch
MARK = "STEPWARDEN_ATTACHED"  # the pid of the attached rank: its child processes inherit it


def start() -> None:
    """Seed, name the checkpoint to go on from, and attach once torch is imported. Never raises then."""
    last.start()
    reproducibility.start()
    resume.start()
    importing.wait(imported)


def imported() -> None:
    """Set what the run asks for in torch, then attach: a rank that can't be watched is repeatable as well."""
    reproducibility.torch_imported()
    attach_quietly()


def attach_quietly() -> None:
    """Attach, or say in one line why not: the training goes on in any case."""
    try:
        attach()
    except Exception as error:  # noqa: BLE001 - a guest never breaks its host, whatever went wrong
        say(f"the agent can't attach, the training goes on unwatched: {type(error).__name__}: {error}")


def attach() -> "Attached":
    """Attach to this process. Raises `RuntimeError` for an old torch, `ValueError` for a bad environment."""
    import torch  # noqa: PLC0415 - the user's own, which must have been imported by now

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        message = f"torch {torch.__version__} is too old, it takes {OLDEST[0]}.{OLDEST[1]} or newer"
        raise RuntimeError(message)
    from stepwarden.agent import environment  # noqa: PLC0415 - after the version is known to do
    from stepwarden.agent.attach import Attached  # noqa: PLC0415 - imports torch

    settings = environment.read(os.environ)
    for complaint in settings.complaints:
        say(f"rank {settings.rank}: {complaint}")
    attached = Attached(settings)
    os.environ[MARK] = str(os.getpid())
    return attached
