"""From what is observed to the status that says so. Pure; the status is also what is remembered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwarden.attempt import Moment
from stepwarden.wire import Finding
from stepwarden_operator import conditions, ranks, saving
from stepwarden_operator.conditions import Condition
from stepwarden_operator.findings import KEPT, count, label, news, to_status
from stepwarden_operator.observe import Observed, timestamp
from stepwarden_operator.outcome import failure
from stepwarden_operator.pause import Pause, Verdict
from stepwarden_operator.restart import Restart, counted, number, under_way
from stepwarden_operator.saving import Saving

LAST_CHARACTERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What was decided about a job before its status is written."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    ended: str | None
    suspend: bool  # what should be
    suspended: bool  # what is
    held: bool
    run: int
    restart: Restart | None = None  # that is to be done
    refused: str = ""  # why one isn't, of a job that failed
    saving: Saving | None = None  # what the training is asked for before its pods go

    @property
    def pause(self) -> Pause | None:
        """The pause that lasts, if any."""
        return self.verdict.pause


def status_of(observed: Observed, seen: Situation, now: float) -> dict[str, Any]:
    """Build the whole status."""
    job, old = observed.job, observed.job.status
    found = conditions_of(observed, seen)
    phase = phase_of(observed, seen, running=found[1].status)
    counted = ranks.count(observed, seen.ended, suspended=seen.suspended)
    return drop_none(
        {
            **restarts(observed, seen, now),
            "phase": phase,
            "observedGeneration": job.generation,
            "conditions": conditions.dated(
                found, old.get("conditions") or (), timestamp(now), job.generation
            ),
            "progress": progress_of(observed, changed=phase != old.get("phase")),
            "ranks": counted,
            "findings": [to_status(finding) for finding in seen.findings[-KEPT:]],
            "findingsCount": count(old, seen.findings),
            "lastFinding": label(seen.findings[-1]) if seen.findings else None,
            "lastFindingTime": news(old, seen.findings, timestamp(now)),
            "notRestarted": seen.refused or None,
            "disruptions": disruptions(observed),
            "startTime": (observed.child and observed.child.start_time) or old.get("startTime"),
            "completionTime": completion_time(observed, seen),
            "pause": pause_of(seen.pause),
            "run": seen.run,
            "saving": saving.to_status(seen.saving, seen.run),
            "acknowledged": acknowledged_of(seen.verdict),
        },
    )


def phase_of(observed: Observed, seen: Situation, *, running: bool) -> str:
    """Name the state that a person sees first."""
    if seen.ended:
        return seen.ended
    if seen.suspended:
        return "Suspended"
    if seen.restart or under_way(observed):
        return "Restarting"
    if seen.held:
        return "Held"
    return "Running" if running else "Pending"


def conditions_of(observed: Observed, seen: Situation) -> list[Condition]:
    """Build all conditions: Accepted, PodsReady, Held, Suspended, and how it ended."""
    old = observed.job.status.get("conditions") or ()
    finished = seen.ended is not None
    over = ("Finished", "the job has ended") if finished else None
    away = ("Suspended", "the pods are deleted") if seen.suspended else over
    is_held = seen.held and not finished and not seen.suspended
    is_suspended = seen.suspended and not finished
    found = [
        conditions.accepted(observed),
        conditions.pods_ready(observed, finished=finished, suspended=seen.suspended),
        conditions.toggled("Held", held_because(observed, seen) if is_held else None, old, away),
        conditions.toggled("Suspended", suspended_because(seen) if is_suspended else None, old, over),
    ]
    if seen.restart or number(observed):
        found.append(restarting(observed, seen))
    if seen.saving:
        found.append(saving.condition(seen.saving))
    if seen.ended == "Complete":
        found.append(Condition("Complete", status=True, reason="Complete", message="all ranks ended well"))
    if seen.ended == "Failed":
        found.append(failure(observed, seen.findings, seen.pause, seen.refused))
    return found


def held_because(observed: Observed, seen: Situation) -> tuple[str, str]:
    """Say why the ranks are held, and what one can do now."""
    name = observed.job.name
    if seen.pause:
        first = seen.pause.decision.findings[0]
        way_out = f"`kubectl stepwarden resume {name}` goes on"
        after = (
            f"; {seen.pause.decision.rule.then} at {timestamp(seen.pause.deadline)}"
            if seen.pause.deadline
            else ""
        )
        return first.kind, f"{first.message}. {way_out}{after}"
    if observed.job.hold:
        return "Requested", f"spec.hold is true: `kubectl stepwarden resume {name}` goes on"
    return "Resuming", "the ranks are told to go on"


def suspended_because(seen: Situation) -> tuple[str, str]:
    """Say why the pods are deleted."""
    if seen.pause:
        first = seen.pause.decision.findings[0]
        return first.kind, f"the policy asks for it: {first.message}"
    return "Requested", "spec.suspend is true"


def progress_of(observed: Observed, *, changed: bool) -> Any:
    """Return the progress to show; the last one, where it isn't time for a new one yet."""
    old = observed.job.status.get("progress")
    new = ranks.progress(observed)
    return new if new and (changed or observed.progress_due or not old) else old


def restarting(observed: Observed, seen: Situation) -> Condition:
    """Say that the job is started anew, what for, and what that waits for; or that it was."""
    most = observed.job.restarts.most
    if seen.restart and observed.job.hold:
        message = (
            f"{seen.restart.message}. The restart waits while spec.hold is true: "
            f"`kubectl stepwarden resume {observed.job.name}` goes on"
        )
        return Condition("Restarting", status=True, reason=seen.restart.reason, message=message)
    last = observed.job.status.get("lastRestart") or {}
    which = int(observed.job.status.get("restarts", 0)) + (seen.restart is not None)
    reason, message = last.get("reason", "Restarted"), last.get("message", "")
    at = last.get("notBefore", "")
    if seen.restart:
        reason, message, at = seen.restart.reason, seen.restart.message, timestamp(seen.restart.at)
    told = f"restart {which} of {most}: {message}"
    if not seen.restart and not under_way(observed):
        return Condition("Restarting", status=False, reason="Restarted", message=told)
    wait = f"; waits for {', '.join(observed.leftover)} to end" if observed.leftover else f"; not before {at}"
    return Condition("Restarting", status=True, reason=reason, message=told + wait)


def restarts(observed: Observed, seen: Situation, now: float) -> dict[str, Any]:
    """Count the restarts, and remember the last one; one that waits for a person is not counted yet."""
    old, anew = observed.job.status, None if observed.job.hold else seen.restart
    known = {key: old.get(key) for key in ("restartsBy", "lastRestart")}
    total = number(observed)
    if anew is None:
        return {"restarts": total, **known}
    return {
        "restarts": total + 1,
        "restartsBy": counted(old, anew),
        "lastRestart": {
            "reason": anew.reason,
            "message": anew.message[:LAST_CHARACTERS],
            "time": timestamp(now),
            "notBefore": timestamp(anew.at),
        },
    }


def disruptions(observed: Observed) -> int:
    """Count the pods that were replaced after a disruption."""
    disrupted = sum(pod.disrupted for pod in observed.pods)
    return max(int(observed.job.status.get("disruptions", 0)), disrupted)


def completion_time(observed: Observed, seen: Situation) -> str | None:
    """Return when the job ended."""
    if not seen.ended:
        return None
    child = observed.child
    return (child and (child.complete or child.failed)) or observed.job.status.get("completionTime")


def pause_of(pause: Pause | None) -> dict[str, Any] | None:
    """Write the pause: it must be remembered since when it lasts."""
    if pause is None:
        return None
    decision = pause.decision
    return {
        "findings": [label(finding) for finding in decision.findings[-KEPT:]],
        "action": pause.action,
        "since": timestamp(pause.since),
        **in_attempt(decision.until),
    }


def acknowledged_of(verdict: Verdict) -> dict[str, Any] | None:
    """Write what is acknowledged."""
    known = verdict.acknowledged
    if known.step < 0:
        return None
    return {"update": known.update, "run": known.run, **in_attempt(known.until)}


def in_attempt(until: Moment) -> dict[str, int]:
    """Write a step, and its attempt where that is not the first."""
    attempt, step = until
    return {"step": step, "attempt": attempt} if attempt else {"step": step}


def drop_none(body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what isn't known."""
    return {key: value for key, value in body.items() if value is not None}


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) that makes the new of the old; empty where they're alike."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch


def unreadable(old: Mapping[str, Any], generation: int, sentence: str, now: float) -> dict[str, Any]:
    """Build the patch for a job whose spec can't be meant."""
    found = [Condition("Accepted", status=False, reason="InvalidSpec", message=sentence)]
    new = {
        **old,
        "phase": old.get("phase", "Pending"),
        "observedGeneration": generation,
        "conditions": conditions.dated(found, old.get("conditions") or (), timestamp(now), generation),
    }
    return merge_patch(old, new)
