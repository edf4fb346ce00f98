"""From the API's objects to what a decision needs of them. Pure: reads dictionaries, asks nobody."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stepwarden.wire import Finding, JobReport, from_dict
from stepwarden_operator.names import INDEX_ANNOTATION, RESTARTS_ANNOTATION, SIDECAR_CONTAINER
from stepwarden_operator.training_job import TrainingJob

LOG_LINES = 20
LOG_CHARACTERS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """The batch/v1 Job. `suspended` is its controller's word, `suspend` what is asked of it."""

    uid: str
    created: str
    suspend: bool = False
    suspended: bool = False
    restarts: int = 0
    deadline: int | None = None
    start_time: str | None = None
    complete: str | None = None  # when
    failed: str | None = None  # when
    failed_reason: str = ""
    failed_message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a container ended badly: the trainer's, or another that the pod needs."""

    code: int
    reason: str
    log: str
    finished: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. `up`: its trainer runs or has ended well. `problem`: why it can't, (reason, message)."""

    name: str
    uid: str
    index: int
    ip: str = ""
    running: bool = False
    up: bool = False
    terminating: bool = False
    finished: bool = False
    disrupted: bool = False
    exit: Exit | None = None
    left: tuple[Finding, ...] = ()  # what its sidecar, the job's hub, left behind when it ended
    problem: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The API server said no to a child of this generation. `permanent`: until the spec changes."""

    generation: int
    reason: str
    message: str
    permanent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that a decision about one job may look at."""

    job: TrainingJob
    child: Child | None = None
    pods: tuple[Pod, ...] = ()
    leftover: tuple[str, ...] = ()  # names of pods of an earlier Job that still live
    report: JobReport | None = None
    refusal: Refusal | None = None
    pods_refused: str = ""  # what the Job controller was told when it made pods
    progress_due: bool = True
    announced: frozenset[str] = frozenset()  # names of the Events that this operator has made


def read_child(body: Mapping[str, Any]) -> Child:
    """Read a batch/v1 Job."""
    spec, status = body.get("spec", {}), body.get("status") or {}
    true = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    failed = true.get("Failed", {})
    return Child(
        uid=body["metadata"]["uid"],
        created=body["metadata"].get("creationTimestamp", ""),
        suspend=spec.get("suspend", False),
        suspended="Suspended" in true,
        restarts=int((body["metadata"].get("annotations") or {}).get(RESTARTS_ANNOTATION, 0)),
        deadline=spec.get("activeDeadlineSeconds"),
        start_time=status.get("startTime"),
        complete=true["Complete"].get("lastTransitionTime") if "Complete" in true else None,
        failed=failed.get("lastTransitionTime"),
        failed_reason=failed.get("reason", ""),
        failed_message=failed.get("message", ""),
    )


def read_pod(body: Mapping[str, Any], trainer: str) -> Pod:
    """Read a pod of the job."""
    meta, status = body["metadata"], body.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    state = trainer_state(status, trainer)
    ended = [state, *(c["state"] for c in with_state(status) if c["name"] != SIDECAR_CONTAINER)]
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        index=int((meta.get("annotations") or {}).get(INDEX_ANNOTATION, 0)),
        ip=status.get("podIP", ""),
        running="running" in state,
        up="running" in state or state.get("terminated", {}).get("exitCode") == 0,
        terminating="deletionTimestamp" in meta,
        finished=status.get("phase") in ("Succeeded", "Failed"),
        disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
        exit=next(filter(None, (read_exit(one.get("terminated")) for one in ended)), None),
        left=read_left(status),
        problem=problem(conditions, status),
    )


def trainer_state(status: Mapping[str, Any], trainer: str) -> Mapping[str, Any]:
    """Return the state of the trainer's container; empty before the kubelet has said anything."""
    for container in status.get("containerStatuses") or ():
        if container["name"] == trainer:
            return container.get("state") or {}
    return {}


def read_exit(terminated: Mapping[str, Any] | None) -> Exit | None:
    """Read how a container ended; None while it runs, and when it ended well."""
    if not terminated or terminated.get("exitCode") == 0:
        return None
    lines = terminated.get("message", "").strip().splitlines()[-LOG_LINES:]
    return Exit(
        code=terminated.get("exitCode", -1),
        reason=terminated.get("reason", ""),
        log="\n".join(lines)[-LOG_CHARACTERS:],
        finished=terminated.get("finishedAt") or "",
    )


def read_left(status: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Read the findings that the hub left in its container's termination message, one a line."""
    states = (c["state"] for c in with_state(status) if c["name"] == SIDECAR_CONTAINER)
    message = "".join(state.get("terminated", {}).get("message", "") for state in states)
    try:
        return tuple(from_dict(Finding, json.loads(line)) for line in message.splitlines())
    except ValueError:  # something else was written there: a crash, or another version's words
        return ()


BENIGN = frozenset({"ContainerCreating", "PodInitializing"})


def problem(conditions: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, str] | None:
    """Say what keeps a pod from running, in the scheduler's or the kubelet's words."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason", "Unschedulable"), scheduled.get("message", "")
    for container in with_state(status):
        waiting = container["state"].get("waiting", {})
        if waiting.get("reason", "ContainerCreating") not in BENIGN:
            return waiting["reason"], f"container {container['name']}: {waiting.get('message', '')}"
    return None


def with_state(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the containers' statuses that have a state, init containers first."""
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from (c for c in status.get(key) or () if c.get("state"))


def seconds_of(timestamp: str) -> float:
    """Read an API timestamp, in seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def timestamp(seconds: float) -> str:
    """Write an API timestamp: whole seconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
