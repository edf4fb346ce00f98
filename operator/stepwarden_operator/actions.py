"""Everything the operator can do for one job, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepwarden.wire import Instruction


@dataclass(frozen=True, slots=True)
class Create:
    """Make the children: Secret and Service, then the Job, which bears the number of its restart."""

    suspend: bool
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the batch/v1 Job of this uid and no other, and its pods with it. Secret and Service stay."""

    uid: str


@dataclass(frozen=True, slots=True)
class PatchJob:
    """Change the few fields of the batch/v1 Job that may change while it lives."""

    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Instruct:
    """Tell the job's hub what its ranks should do."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Merge this into the TrainingJob's status; None takes a field away."""

    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """
    Make a Kubernetes Event, once: `key` names the occasion, for all time.

    The Event's name is made of the job's uid, reason and key, so that saying it twice
    makes one Event even where the operator was killed in between.
    """

    reason: str
    key: str
    message: str
    time: str
    type: Literal["Normal", "Warning"] = "Normal"


Action = Create | DeleteJob | PatchJob | Instruct | WriteStatus | Announce
