"""
The words the processes share.

An agent says them in a rank, a sidecar relays them from a pod, the operator (or
`stepwarden run`, which stands in for it on a laptop) reads them. One JSON object a
message, named by its `type`. Fields are only ever added, with a default; a field that
the reader doesn't know is ignored; taking one away is a new `SCHEMA`.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from stepwarden.encoding import FLOATS, READS, check, plain, whole
from stepwarden.pulse import Pulse, RankExit
from stepwarden.replica import Replica

SCHEMA = 1

# What starts the processes; set by the operator or by `stepwarden run`, owned by us.
ENV_DIRECTORY = "STEPWARDEN_DIR"  # holds sidecar.sock and rank-N.sock
ENV_RANK = "STEPWARDEN_RANK"  # the rank of a process that torchrun did not start
ENV_POLICY = "STEPWARDEN_POLICY"  # stepwarden.policy.to_json
ENV_PROBES = "STEPWARDEN_PROBES"  # JSON: {probe: {"enabled": bool, parameter: value}}
ENV_TOKEN = "STEPWARDEN_TOKEN"  # noqa: S105 - the variable's name, not a token
ENV_HUB = "STEPWARDEN_HUB"  # URL of the job's hub; unset: this sidecar is the hub
ENV_POD = "STEPWARDEN_POD"  # the pod's completion index
ENV_RANKS = "STEPWARDEN_RANKS"  # how many ranks the whole job has
ENV_PORT = "STEPWARDEN_PORT"  # the sidecar's HTTP port
ENV_CHECK = "STEPWARDEN_CHECK"  # JSON: {"steps": N, "gradcheck": [names]}, of `stepwarden check`
ENV_CONTAINMENT = "STEPWARDEN_CONTAINMENT"  # strict or deferred
ENV_REPLAYS = "STEPWARDEN_REPLAY_DIR"  # folder for the bundles of replays; unset: none
ENV_GRACE = "STEPWARDEN_FAILURE_GRACE"  # seconds that ranks have to end in once another one failed
ENV_CHECKPOINTS = "STEPWARDEN_CHECKPOINT_DIR"  # where the training keeps its checkpoints
ENV_RESUME = "STEPWARDEN_RESUME_FROM"  # told to the training: the newest whole and finite checkpoint
ENV_SAVE_FILE = "STEPWARDEN_SAVE_FILE"  # told to the training: while this file is there, it is asked to save
ENV_SAVE_SIGNAL = "STEPWARDEN_SAVE_SIGNAL"  # name of a signal that asks a rank to save, as SIGUSR1
ENV_REPORT = "STEPWARDEN_REPORT"  # folder for findings.jsonl and steps.jsonl; unset: none

DEFAULT_PORT = 8475
SIDECAR_SOCKET = "sidecar.sock"
LIFE_SOCKET = "life.sock"  # a stream that each rank keeps open: the kernel closes it when the rank dies
MAX_DATAGRAM = 128 * 1024  # under Linux' default socket buffer of 208 KiB

Severity = Literal["info", "warning", "critical"]
Status = Literal["ok", "bad", "unknown"]
State = Literal["running", "held", "failed", "ended"]
Update = Literal["skip", "apply"]
Topic = Literal["layers", "gradcheck"]
Containment = Literal["strict", "deferred"]


def rank_socket(rank: int) -> str:
    """Name of the socket, below the shared directory, at which a rank takes orders."""
    return f"rank-{rank}.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a probe says is wrong with a run. The fields are those of docs/findings.md."""

    kind: str
    severity: Severity
    step: int
    message: str
    first_step: int | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    module: str | None = None
    parameter: str | None = None
    op: str | None = None
    file: str | None = None
    line: int | None = None
    label: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe makes of what it saw: ok, bad, or unknown (silence is not health)."""

    status: Status
    reason: str
    message: str
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTaken:
    """
    One optimizer step, as its own rank saw it before the update was applied.

    `time` is in seconds since the epoch, `seconds` since the rank's step before,
    `overhead_seconds` what the agent itself took of them; `dropped` counts messages
    that the sidecar could not take so far. A rank sends it after the step's findings.
    `agree`: it waits until all ranks have said theirs, as it can't see by itself that a step is bad.
    """

    rank: int
    step: int
    time: float
    seconds: float | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    overhead_seconds: float = 0.0
    dropped: int = 0
    agree: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """
    Where a rank is: said on every change, and once a second so that a new sidecar knows.

    `step` is the last step that reached its boundary, -1 before the first. A held rank
    waits at the boundary of `step`: that update is not applied yet.
    """

    rank: int
    state: State
    step: int
    time: float
    pid: int = 0
    reason: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)  # probe: why it can't tell
    saved: int = 0  # the last `Orders.save` that the training has answered by a checkpoint
    attempt: int = 0  # how many processes had this rank before, in this pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """
    Something for the report alone, as one JSON object a line in the topic's own file.

    `layers`: what each layer's parameters and gradients are at a step; `gradcheck`: how one went.
    """

    rank: int
    topic: Topic
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """
    What the ranks should do: the whole of it, so that saying it twice changes nothing.

    A rank waits at the boundary of step s while `hold_at` is not None and s >= hold_at,
    or while a finding of step s asks for a hold and s > `acknowledged`, which is a step of `attempt`.
    `update` says what becomes of the update of a step that a finding held: it is applied, or skipped.
    Where ranks agree: all have said the steps up to `agreed`, `unsound` is the last one that is bad.
    `told` are findings that every rank prints, the last few: how another rank failed, or hangs.
    A `save` that has grown asks the training for a checkpoint.
    """

    hold_at: int | None = None
    attempt: int = 0
    acknowledged: int = -1
    update: Update = "skip"
    agreed: int = -1
    unsound: int = -1
    told: tuple[Finding, ...] = ()
    save: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What the operator tells the hub, again at every turn: the hub makes `Orders` of it."""

    hold: bool = False
    attempt: int = 0
    acknowledged: int = -1
    update: Update = "skip"
    save: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """A rank as the hub knows it."""

    rank: int
    pod: int
    state: State
    step: int
    time: float
    loss: float | None = None
    gradient_norm: float | None = None
    steps_per_second: float | None = None
    reason: str = ""
    agree: bool = False
    saved: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What the hub knows of its job. `version` changes with ranks' states, findings and orders."""

    version: str
    ranks: tuple[RankReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    orders: Orders = field(default_factory=Orders)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """What a pod's sidecar tells the hub: its ranks, its ranks' own findings so far, and their last steps."""

    pod: int
    ranks: tuple[RankReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    replicas: tuple[Replica, ...] = ()
    pulses: tuple[Pulse, ...] = ()


Message = (
    Finding
    | StepTaken
    | Replica
    | RankState
    | Pulse
    | RankExit
    | Note
    | Orders
    | Instruction
    | JobReport
    | PodReport
)
Known = TypeVar("Known", bound=Message | RankReport)

TYPES: Mapping[str, type[Message]] = {
    "finding": Finding,
    "step": StepTaken,
    "replica": Replica,
    "rank": RankState,
    "pulse": Pulse,
    "exit": RankExit,
    "note": Note,
    "orders": Orders,
    "instruction": Instruction,
    "job": JobReport,
    "pod": PodReport,
}
NAMES = {cls: name for name, cls in TYPES.items()}
LISTS: Mapping[str, type[Any]] = {"findings": Finding, "told": Finding, "replicas": Replica, "pulses": Pulse}


def to_dict(message: Message | RankReport) -> dict[str, Any]:
    """Put a message as plain JSON values, without its `type`."""
    body: dict[str, Any] = plain(message.told() if isinstance(message, Replica | Pulse) else asdict(message))
    return body


def from_dict(cls: type[Known], body: Mapping[str, Any]) -> Known:
    """
    Read a message, ignoring the fields that a newer sender may have added.

    Raises `ValueError`, with the reason, where the body can't be one.
    """
    try:
        return cls(**{spec.name: read(spec, body[spec.name]) for spec in fields(cls) if spec.name in body})
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        message = f"not a {cls.__name__}: {error}"
        raise ValueError(message) from error


def read(spec: "Field[Any]", value: Any) -> Any:
    """Read one field: the few whose JSON form is not their own are known by name. Raises `TypeError`."""
    check(spec, value)
    name = spec.name
    if name in FLOATS:
        return None if value is None else float(value)
    if name == "ranks":
        return tuple(from_dict(RankReport, item) if isinstance(item, dict) else whole(item) for item in value)
    if name in LISTS:
        return tuple(from_dict(LISTS[name], item) for item in value)
    if name == "orders":
        return from_dict(Orders, value)
    return READS[name](value) if name in READS else value


def to_line(message: Message) -> str:
    """Write one message as one line (without its end)."""
    head = {"type": NAMES[type(message)], "schema": SCHEMA}
    return json.dumps(head | to_dict(message), allow_nan=False, separators=(",", ":"))


def from_line(line: str | bytes) -> Message:
    """Read one message. Raises `ValueError` where the line is none, or of an unknown type."""
    try:
        body = json.loads(line)
    except RecursionError as error:
        message = "not a message: nested too deeply"
        raise ValueError(message) from error
    if not isinstance(body, dict) or str(body.get("type")) not in TYPES:
        message = f"not a message: {line[:80]!r}"
        raise ValueError(message)
    return from_dict(TYPES[body["type"]], body)
