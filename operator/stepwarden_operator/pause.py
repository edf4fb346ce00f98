"""What the findings ask of a job, given what was acknowledged and how long it has waited. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepwarden.attempt import NEVER, moment, until
from stepwarden.policy import Action, Decision, decide, overdue
from stepwarden.wire import Finding, Instruction, JobReport, Update
from stepwarden_operator.findings import run_of
from stepwarden_operator.observe import seconds_of
from stepwarden_operator.restart import refusal
from stepwarden_operator.saving import Saving
from stepwarden_operator.training_job import Acknowledged, TrainingJob

CRASH_GRACE = 10.0  # seconds in which a crashed job ends by itself, with its logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """
    A pause that lasts: since when, what for, and what it asks for by now.

    `deadline` is when that changes by itself, None where only a person can end it.
    """

    decision: Decision
    since: float
    action: Action
    deadline: float | None
    refused: str = ""  # why it isn't a restart, although a rule asks for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is acknowledged by now, and the pause that is left, if any."""

    acknowledged: Acknowledged
    pause: Pause | None


def judge(job: TrainingJob, findings: tuple[Finding, ...], now: float) -> Verdict:
    """Say what the findings ask for at this time."""
    findings = tuple(finding for finding in findings if run_of(finding) == job.run)
    acknowledged = dealt_with(job, findings)
    decision = decide(job.rules, findings, acknowledged.until)
    if decision is None:
        return Verdict(acknowledged=acknowledged, pause=None)
    pause = bounded(job, pause_of(decision, since(job.status, now), now), now)
    if pause.action in {"Skip", "Observe"}:
        update: Update = "skip" if pause.action == "Skip" else "apply"
        attempt, step = decision.until
        known = Acknowledged(step=step, update=update, run=job.run, attempt=attempt)
        return Verdict(acknowledged=known, pause=None)
    return Verdict(acknowledged=acknowledged, pause=pause)


def dealt_with(job: TrainingJob, findings: Iterable[Finding]) -> Acknowledged:
    """
    Return the furthest of: what the status remembers, what a person wrote, what `suspend` implies.

    Someone who suspends a job starts its pods anew: what was found before is dealt with.
    """
    known = read_acknowledged_status(job.status)
    if known.run != job.run:
        known = Acknowledged(run=job.run)
    person = job.acknowledged
    if person.run == job.run and person.until >= known.until:
        known = person
    last = max(map(moment, findings), default=NEVER)
    if job.suspend and last > known.until:
        return replace(known, attempt=last[0], step=last[1])
    return known


def read_acknowledged_status(status: Mapping[str, Any]) -> Acknowledged:
    """Read what the status remembers as acknowledged."""
    raw = status.get("acknowledged") or {}
    return Acknowledged(
        step=raw.get("step", -1),
        update=raw.get("update", "skip"),
        run=raw.get("run", 0),
        attempt=raw.get("attempt", 0),
    )


def since(status: Mapping[str, Any], now: float) -> float:
    """Return when the pause began: the status remembers it, or it begins now."""
    pause = status.get("pause")
    return seconds_of(pause["since"]) if pause else now


def pause_of(decision: Decision, began: float, now: float) -> Pause:
    """Put a decision as a pause."""
    action, rule = overdue(decision, began, now), decision.rule
    waits = rule.timeout is not None and rule.then is not None and action == decision.action
    end = began + (rule.timeout or 0.0) if waits else None
    return Pause(decision=decision, since=began, action=action, deadline=end)


def bounded(job: TrainingJob, pause: Pause, now: float) -> Pause:
    """Make of a restart that may not be done a failure, and let a crash end by itself before both."""
    refused = refusal(job, pause.decision) if pause.action == "Restart" else ""
    if refused:
        pause = replace(pause, action="Fail", refused=refused)
    crashed = all(finding.kind == "RankFailed" for finding in pause.decision.findings)
    return crash(pause, now) if crashed and pause.action in {"Fail", "Restart"} else pause


def crash(pause: Pause, now: float) -> Pause:
    """
    Wait for a crashed rank's job to end by itself, for a while.

    To end it from here deletes its pods, and with them the logs that say why.
    """
    end = pause.since + CRASH_GRACE
    return pause if now >= end else replace(pause, action="Hold", deadline=end)


def instruction(job: TrainingJob, verdict: Verdict, wish: Saving | None = None) -> Instruction:
    """Say what the hub should make its ranks do."""
    return Instruction(
        hold=job.hold or verdict.pause is not None or wish is not None,
        save=wish.number if wish else 0,
        attempt=verdict.acknowledged.attempt,
        acknowledged=verdict.acknowledged.step,
        update=verdict.acknowledged.update,
    )


def obeyed(asked: Instruction, report: JobReport) -> bool:
    """Whether the hub's orders already say what is asked."""
    orders = report.orders
    said, wanted = until(orders), until(asked)
    return (
        (orders.hold_at is not None) == asked.hold
        and orders.save >= asked.save
        and said >= wanted
        and (orders.update == asked.update or said != wanted)
    )
