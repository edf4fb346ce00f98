"""What a TrainingJob says on saving, and on starting anew after a fault. Pure; raises `ValueError`."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from stepwarden.policy import seconds

GRACE = 60.0  # seconds that the training has to save
MAX_RESTARTS = 3
BACKOFF = 10.0  # seconds before the first restart, as the Job controller has; it doubles with each
HIGHEST_CODE = 255

RestartPolicy = Literal["OnFailure", "ExitCode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where the training keeps its checkpoints, and how it is asked for one before its pods go."""

    directory: str
    grace: float = GRACE
    signal: str = ""  # name of the signal that the ranks get, if any


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How often the whole job may be started anew, how soon, and after which exit codes."""

    most: int = MAX_RESTARTS
    backoff: float = BACKOFF
    policy: RestartPolicy = "OnFailure"
    retryable: frozenset[int] = frozenset()


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


def read_restarts(spec: Mapping[str, Any]) -> Restarts:
    """Read `maxRestarts`, `restartBackoff`, `restartPolicy` and `retryableExitCodes`. Raises `ValueError`."""
    policy = spec.get("restartPolicy", "OnFailure")
    if policy not in ("OnFailure", "ExitCode"):
        message = f"spec.restartPolicy is {policy!r}: give OnFailure or ExitCode"
        raise ValueError(message)
    most, codes = spec.get("maxRestarts", MAX_RESTARTS), spec.get("retryableExitCodes") or ()
    if not isinstance(most, int) or most < 0:
        message = f"spec.maxRestarts is {most!r}: give a whole number, 0 or more"
        raise ValueError(message)
    if wrong := [code for code in codes if not isinstance(code, int) or not 1 <= code <= HIGHEST_CODE]:
        message = f"spec.retryableExitCodes has {wrong[0]!r}: give exit codes, 1 to {HIGHEST_CODE}"
        raise ValueError(message)
    backoff = spec.get("restartBackoff")
    return Restarts(
        most=most,
        backoff=BACKOFF if backoff is None else seconds(str(backoff)),
        policy=cast("RestartPolicy", policy),
        retryable=frozenset(codes),
    )
