"""What a TrainingJob says on its checkpoints. Pure; raises `ValueError`."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwarden.policy import seconds

GRACE = 60.0  # seconds that the training has to save


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where the training keeps its checkpoints, and how it is asked for one before its pods go."""

    directory: str
    grace: float = GRACE
    signal: str = ""  # name of the signal that the ranks get, if any


def read_checkpoint(raw: Mapping[str, Any] | None) -> Checkpoint | None:
    """Read `spec.checkpoint`. Raises `ValueError`."""
    if raw is None:
        return None
    directory, name = str(raw.get("directory") or ""), str(raw.get("signal") or "")
    if not directory.startswith("/"):
        message = f"spec.checkpoint.directory is {directory!r}: give the folder's path in the container"
        raise ValueError(message)
    if name and name not in signal.Signals.__members__:
        message = f"spec.checkpoint.signal is {name!r}: give a signal's name, as in SIGUSR1"
        raise ValueError(message)
    grace = seconds(str(raw["gracePeriod"])) if raw.get("gracePeriod") is not None else GRACE
    return Checkpoint(directory=directory, grace=grace, signal=name)
