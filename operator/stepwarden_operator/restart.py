"""
Whether a job is started anew after a fault, when, and how often that was done. Pure.

The status counts the restarts, and the Job bears the number of the one that it was made for. A decision
is one write to the status; a Job with a lower number than the status is of an earlier run, and is
deleted and made anew. So an operator that is killed at any instant, and the one after it, restart once.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwarden.policy import Decision, decide
from stepwarden.wire import Finding
from stepwarden_operator.observe import Observed, seconds_of
from stepwarden_operator.training_job import TrainingJob

BACKOFF_AT_MOST = 300.0  # seconds
FIRST_SIGNAL_CODE = 128  # a process that a signal ended has this and the signal's number as its exit code


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


def decided(job: TrainingJob, decision: Decision, restarts: int, now: float) -> Restart:
    """Put a decision as a restart, after a wait that doubles with each."""
    first = decision.findings[0]
    wait = min(job.restarts.backoff * 2.0 ** min(restarts, 32), BACKOFF_AT_MOST)
    place = job.rules.index(decision.rule)
    return Restart(reason=first.kind, message=first.message, rule=place, at=now + wait)


def after_crash(job: TrainingJob, findings: Iterable[Finding]) -> Decision | None:
    """
    Return what to do about a job that failed, where that is a restart.

    What was acknowledged doesn't count: a crashed job can't go on. Nor can it be held, so a rule that
    holds and restarts then does so at once.
    """
    decision = decide(job.rules, [finding for finding in findings if finding.kind == "RankFailed"], -1)
    if decision is None:
        return None
    rule = decision.rule
    wants = rule.action == "Restart" or (rule.action == "Hold" and rule.then == "Restart")
    return decision if wants else None


def refusal(job: TrainingJob, decision: Decision) -> str:
    """Say why a restart that a rule asks for is not done; nothing where it is."""
    done, by_rule = int(job.status.get("restarts", 0)), of_rule(job.status, job.rules.index(decision.rule))
    if done >= job.restarts.most:
        return f"restarted {done} of {job.restarts.most} times (spec.maxRestarts)"
    times = decision.rule.times
    if times is not None and by_rule >= times:
        return f"restarted {by_rule} of {times} times by this rule (times)"
    if job.restarts.policy == "ExitCode":
        for code in map(exit_code, crashes(decision.findings)):
            if code is not None and code < FIRST_SIGNAL_CODE and code not in job.restarts.retryable:
                return f"exit code {code} is permanent (spec.restartPolicy is ExitCode)"
    return ""


def crashes(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that have an exit code."""
    return [finding for finding in findings if finding.kind == "RankFailed"]


def exit_code(finding: Finding) -> int | None:
    """
    Return a failed rank's exit code as a shell gives it, 128 + N for signal N; None if it isn't known.

    torchrun ends with 1 however its rank ended, so what the agent knows of the rank counts first.
    """
    told, code = finding.evidence.get("signal"), finding.evidence.get("exit_code")
    if isinstance(told, str) and told in signal.Signals.__members__:
        return FIRST_SIGNAL_CODE + signal.Signals[told]
    if isinstance(told, int) and told > 0:
        return FIRST_SIGNAL_CODE + told
    if isinstance(code, int):
        return code if code >= 0 else FIRST_SIGNAL_CODE - code
    return 1 if finding.evidence.get("traceback") else None


def of_rule(status: Mapping[str, Any], rule: int) -> int:
    """Return how many restarts one rule has asked for."""
    return sum(each["count"] for each in status.get("restartsBy") or () if each["rule"] == rule)


def counted(status: Mapping[str, Any], restart: Restart) -> list[dict[str, Any]]:
    """Return the restarts by rule and reason, with one more."""
    by = {(each["rule"], each["reason"]): each["count"] for each in status.get("restartsBy") or ()}
    key = (restart.rule, restart.reason)
    by[key] = by.get(key, 0) + 1
    return [{"rule": rule, "reason": reason, "count": by[rule, reason]} for rule, reason in sorted(by)]
