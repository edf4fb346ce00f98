"""The conditions of a TrainingJob: what is so, since when, and in a sentence why. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stepwarden_operator.observe import Observed, Pod

MESSAGE_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, undated: `status` is True when what its `type` names is so."""

    type: str
    status: bool
    reason: str
    message: str


def dated(
    found: Iterable[Condition],
    old: Iterable[Mapping[str, Any]],
    now: str,
    generation: int,
) -> list[dict[str, Any]]:
    """Put conditions as the status has them, each dated from when its status last changed."""
    before = {condition["type"]: condition for condition in old}
    return [date(condition, before.get(condition.type), now, generation) for condition in found]


def date(condition: Condition, before: Mapping[str, Any] | None, now: str, generation: int) -> dict[str, Any]:
    """Date one condition."""
    status = "True" if condition.status else "False"
    same = before is not None and before["status"] == status
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message[:MESSAGE_CHARACTERS],
        "lastTransitionTime": before["lastTransitionTime"] if before and same else now,
        "observedGeneration": generation,
    }


def accepted(observed: Observed) -> Condition:
    """Whether the cluster took what the user asks for."""
    if observed.refusal:
        return Condition(
            "Accepted", status=False, reason=observed.refusal.reason, message=observed.refusal.message
        )
    return Condition("Accepted", status=True, reason="Accepted", message="the manifest is well formed")


def pods_ready(observed: Observed, *, finished: bool, suspended: bool) -> Condition:
    """Whether all pods run, and if not, what the first of them lacks."""
    total = observed.job.num_nodes
    up = [pod for pod in live(observed.pods) if pod.up]
    if not finished and not suspended and len(up) >= total:
        return Condition("PodsReady", status=True, reason="AllRunning", message=f"all {total} pods run")
    reason, message = why_not(observed, len(up), finished=finished, suspended=suspended)
    return Condition("PodsReady", status=False, reason=reason, message=message)


def why_not(observed: Observed, up: int, *, finished: bool, suspended: bool) -> tuple[str, str]:
    """Say why the pods don't run."""
    if finished:
        return "Finished", "the job has ended"
    if suspended:
        return "Suspended", "the pods are deleted while the job is suspended"
    if observed.refusal:
        return observed.refusal.reason, "there are no pods: see the condition Accepted"
    for pod in sorted(live(observed.pods), key=lambda pod: pod.index):
        if pod.problem:
            return pod.problem[0], f"pod {pod.name}: {pod.problem[1]}"
    if observed.pods_refused:
        return "FailedCreate", observed.pods_refused
    return "Starting", f"{up} of {observed.job.num_nodes} pods run"


def live(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods that count: neither going nor gone."""
    return tuple(pod for pod in pods if not pod.terminating and (pod.up or not pod.finished))


def toggled(
    kind: str,
    found: tuple[str, str] | None,
    old: Iterable[Mapping[str, Any]],
    ended: tuple[str, str] | None,
) -> Condition:
    """
    Put something that comes and goes (a hold, a suspension) as a condition.

    Once it has been so and no longer is, it stays `Resumed`, or what `ended` it: a person
    sees that it was.
    """
    if found:
        return Condition(kind, status=True, reason=found[0], message=found[1])
    before = next((condition for condition in old if condition["type"] == kind), None)
    if before is None:
        return Condition(kind, status=False, reason=f"Not{kind}", message="nothing asks for it")
    if before["status"] == "False":
        return Condition(kind, status=False, reason=before["reason"], message=before["message"])
    reason, message = ended or ("Resumed", "the job goes on")
    return Condition(kind, status=False, reason=reason, message=message)
