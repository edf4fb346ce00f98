"""
Whether a job is started anew after a fault, when, and how often that was done. Pure.

The status counts the restarts, and the Job bears the number of the one that it was made for. A decision
is one write to the status; a Job with a lower number than the status is of an earlier run, and is
deleted and made anew. So an operator that is killed at any instant, and the one after it, restart once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepwarden import restarts
from stepwarden.policy import Decision
from stepwarden_operator.observe import Observed, seconds_of
from stepwarden_operator.training_job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A restart that is decided: for what, by which rule of onFinding, and not before when."""

    reason: str
    message: str
    rule: int
    at: float


def number(observed: Observed) -> int:
    """Return how often the job was started anew."""
    known = int(observed.job.status.get("restarts", 0))
    return max(known, observed.child.restarts if observed.child else 0)


def stale(observed: Observed) -> bool:
    """Whether the Job is that of an earlier run, which a restart takes the place of."""
    child = observed.child
    return child is not None and child.restarts < int(observed.job.status.get("restarts", 0))


def under_way(observed: Observed) -> bool:
    """Whether a restart is decided, and its Job is not made yet."""
    return bool(observed.job.status.get("restarts")) and (observed.child is None or stale(observed))


def not_before(status: Mapping[str, Any]) -> float:
    """Return when the next Job may be made."""
    last = status.get("lastRestart") or {}
    return seconds_of(last["notBefore"]) if last else 0.0


def waits(observed: Observed, now: float) -> bool:
    """Whether the next Job is not to be made yet: it is too soon, or processes of the last one may live."""
    early = bool(observed.leftover) or now < not_before(observed.job.status)
    return under_way(observed) and early


def decided(job: TrainingJob, decision: Decision, done: int, now: float) -> Restart:
    """Put a decision as a restart, after a wait that doubles with each."""
    first = decision.findings[0]
    place = job.rules.index(decision.rule)
    return Restart(reason=first.kind, message=first.message, rule=place, at=now + job.restarts.wait(done))


def refusal(job: TrainingJob, decision: Decision) -> str:
    """Say why a restart that a rule asks for is not done; nothing where it is."""
    done, by_rule = int(job.status.get("restarts", 0)), of_rule(job.status, job.rules.index(decision.rule))
    return restarts.refusal(job.restarts, decision, done, by_rule)


def of_rule(status: Mapping[str, Any], rule: int) -> int:
    """Return how many restarts one rule has asked for."""
    return sum(each["count"] for each in status.get("restartsBy") or () if each["rule"] == rule)


def counted(status: Mapping[str, Any], restart: Restart) -> list[dict[str, Any]]:
    """Return the restarts by rule and reason, with one more."""
    by = {(each["rule"], each["reason"]): each["count"] for each in status.get("restartsBy") or ()}
    key = (restart.rule, restart.reason)
    by[key] = by.get(key, 0) + 1
    return [{"rule": rule, "reason": reason, "count": by[rule, reason]} for rule, reason in sorted(by)]
