"""Deciding: from what is observed of one job to what is left to do. Pure; the clock is an argument."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stepwarden.restarts import after_crash
from stepwarden.wire import Finding
from stepwarden_operator import restart
from stepwarden_operator.actions import Action, Create, DeleteJob, Instruct, PatchJob, WriteStatus
from stepwarden_operator.conditions import live
from stepwarden_operator.events import story
from stepwarden_operator.findings import current, run_of
from stepwarden_operator.observe import Observed
from stepwarden_operator.outcome import FINISHED, ended, not_restarted, settles_at, spoilt
from stepwarden_operator.pause import Verdict, instruction, judge, obeyed
from stepwarden_operator.ranks import held
from stepwarden_operator.restart import Restart
from stepwarden_operator.saving import STUCK, saving
from stepwarden_operator.status import Situation, merge_patch, status_of
from stepwarden_operator.training_job import TrainingJob

END_NOW = 1  # activeDeadlineSeconds of a Job that the policy ends


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and when to look again even if nothing is heard (None: never)."""

    actions: tuple[Action, ...]
    wake: float | None


def reconcile(observed: Observed, now: float) -> Plan:
    """Return what is left to do; nothing, once the cluster and the status are as they should be."""
    if over(observed):
        return Plan(tuple(story(observed, observed.job.status, now)), wake=None)
    seen = situation(observed, now)
    status = status_of(observed, seen, now)
    patch = merge_patch(observed.job.status, status)
    actions = (
        *children(observed, seen, now),
        *orders(observed, seen),
        *([WriteStatus(patch)] if patch else []),
        *story(observed, status, now),
    )
    deadlines = [
        settles_at(observed, now),
        seen.pause.deadline if seen.pause else None,
        next_look(observed, seen, now),
        seen.saving.until if seen.saving and not seen.saving.over else None,
    ]
    return Plan(actions, min((at for at in deadlines if at is not None), default=None))


def over(observed: Observed) -> bool:
    """Whether the job has ended and its Job is gone since: the status is all that is left, and it stays."""
    return observed.child is None and observed.job.status.get("phase") in FINISHED


def situation(observed: Observed, now: float) -> Situation:
    """Judge what is observed."""
    end = ended(observed, now)
    findings = current(observed, failed=end == "Failed")
    if restart.stale(observed):  # its pods are on their way out
        observed = replace(observed, pods=(), report=None)
    verdict = judge(observed.job, findings, now)
    anew = starts_anew(observed, verdict, findings, end, now)
    end = None if anew else end
    asked = observed.job.suspend or (verdict.pause is not None and verdict.pause.action == "Suspend")
    wish = saving(observed, wanted=end is None and (asked or can_save(anew)), now=now)
    if wish is not None and not wish.over:
        asked, anew = False, None
    suspend = asked or lingers(observed)
    return Situation(
        findings=findings,
        verdict=verdict,
        ended=end,
        suspend=suspend,
        suspended=suspend and end is None and away(observed),
        held=end is None and held(observed, paused=verdict.pause is not None),
        run=observed.job.run + (begins_anew(observed.job, suspend=suspend) or recorded(observed, anew)),
        restart=anew,
        saving=wish,
        refused=not_restarted(observed, findings, verdict.pause) if end == "Failed" else "",
    )


def starts_anew(
    observed: Observed, verdict: Verdict, findings: tuple[Finding, ...], end: str | None, now: float
) -> Restart | None:
    """
    Return the restart that is to be done, if one is.

    None of a job that has ended, or that a person suspends: that starts it anew as well.
    """
    job, child, pause = observed.job, observed.child, verdict.pause
    if child is None or child.complete or job.suspend or restart.stale(observed):
        return None
    if job.status.get("phase") in FINISHED:
        return None
    if end == "Failed":
        crashed = after_crash(job.rules, (f for f in findings if run_of(f) == job.run))
        wanted = crashed if crashed and not restart.refusal(job, crashed) else None
    else:
        wanted = pause.decision if pause and pause.action == "Restart" else None
    return restart.decided(job, wanted, restart.number(observed), now) if wanted else None


def can_save(anew: Restart | None) -> bool:
    """Whether the ranks that a restart ends can still save: those of a crash or a hang can't."""
    return anew is not None and anew.reason not in STUCK


def recorded(observed: Observed, anew: Restart | None) -> bool:
    """Whether a restart is done now; one of a job that a person holds waits for that person."""
    return anew is not None and not observed.job.hold


def next_look(observed: Observed, seen: Situation, now: float) -> float | None:
    """Return when a restart goes on by itself."""
    if recorded(observed, seen.restart):
        return now
    at = restart.not_before(observed.job.status)
    return at if restart.under_way(observed) and observed.child is None and at > now else None


def away(observed: Observed) -> bool:
    """Whether a job that is suspended has no pods any more, nor gets any."""
    child = observed.child
    if child is None:  # between the deletion of a Job and the making of the next
        return observed.job.status.get("phase") in ("Suspended", "Restarting")
    return child.suspend and (child.suspended or not live(observed.pods))


def lingers(observed: Observed) -> bool:
    """
    Whether a suspended job's pods are still ending.

    New ones wait for that: the old hub's word would pass for the new one's, and the Job controller would
    count an old pod that was killed at the end of its grace period as one that failed by itself.
    """
    suspended = observed.job.status.get("phase") == "Suspended"
    told = observed.child is None or observed.child.suspend
    ending = any(pod.terminating or not pod.finished for pod in observed.pods) or observed.leftover
    return suspended and told and bool(ending)


def begins_anew(job: TrainingJob, *, suspend: bool) -> bool:
    """Whether the pods of a job that was suspended are about to be made anew."""
    return job.status.get("phase") == "Suspended" and not suspend


def children(observed: Observed, seen: Situation, now: float) -> Iterator[Action]:
    """Make the children, or bring the Job's few changeable fields in line."""
    if seen.ended:
        return
    child, refusal = observed.child, observed.refusal
    if child is None:
        if restart.waits(observed, now):
            return
        if refusal is None or not refusal.permanent or refusal.generation != observed.job.generation:
            yield Create(suspend=seen.suspend, restarts=restart.number(observed))
        return
    if replaced(observed):
        yield DeleteJob(child.uid)
        return
    if child.complete or child.failed or seen.restart:
        return
    if child.suspend != seen.suspend:
        yield PatchJob({"suspend": seen.suspend})
    if seen.pause and seen.pause.action == "Fail" and child.deadline is None:
        yield PatchJob({"activeDeadlineSeconds": END_NOW})


def replaced(observed: Observed) -> bool:
    """Whether another Job is to take the place of this one."""
    return spoilt(observed) or restart.stale(observed)


def orders(observed: Observed, seen: Situation) -> Iterator[Action]:
    """Tell the hub, where its orders are not yet what they should be."""
    if observed.report is None or seen.ended or seen.suspend or replaced(observed):
        return
    asked = instruction(observed.job, seen.verdict, seen.saving)
    if not obeyed(asked, observed.report):
        yield Instruct(asked)
