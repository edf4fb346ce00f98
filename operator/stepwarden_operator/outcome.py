"""Whether a job has ended, how, and who is to blame. Pure."""

from stepwarden.failure import is_crash
from stepwarden.restarts import after_crash
from stepwarden.wire import Finding
from stepwarden_operator.conditions import Condition
from stepwarden_operator.findings import FROM_POD, first_failed, run_of, traceback_end
from stepwarden_operator.observe import Observed, Pod, seconds_of
from stepwarden_operator.pause import Pause
from stepwarden_operator.restart import refusal, stale

SETTLE = 2.0  # seconds that the failed pod's last words may take to arrive after the Job's
TRACEBACK = 1500  # characters of a traceback's end

FINISHED = frozenset({"Complete", "Failed"})


def ended(observed: Observed, now: float) -> str | None:
    """
    Return `Complete`, `Failed`, or None while it lasts, by what the Job says.

    A failed Job counts once its failed pod is seen, so that the first word about it has the reason. One
    that failed after it was asked to suspend has not failed: the Job controller took pods that were killed
    for the suspension for pods that failed by themselves.
    """
    child = observed.child
    if child is None or spoilt(observed) or stale(observed):
        return None
    if child.complete:
        return "Complete"
    if not child.failed:
        return None
    known = observed.job.status.get("phase") == "Failed"
    settled = known or first_failed(observed) or now >= seconds_of(child.failed) + SETTLE
    return "Failed" if settled else None


def spoilt(observed: Observed) -> bool:
    """Whether a Job ended by its own suspension: it can't go on, another one must take its place."""
    child, over = observed.child, observed.job.status.get("phase") in FINISHED
    return child is not None and child.suspend and child.failed is not None and not over


def settles_at(observed: Observed, now: float) -> float | None:
    """Return when a failure will count at the latest, if one is waiting for its pod."""
    child = observed.child
    if child is None or not child.failed or spoilt(observed) or stale(observed) or ended(observed, now):
        return None
    return seconds_of(child.failed) + SETTLE


def failure(
    observed: Observed, findings: tuple[Finding, ...], pause: Pause | None, refused: str = ""
) -> Condition:
    """Say why a job failed: what the policy ended it for, or the rank that died, or the Job's word."""
    child = observed.child
    assert child  # noqa: S101 - `ended` is Failed only with one
    if pause and pause.action == "Fail" and child.deadline is not None:
        blamed = pause.decision.findings[0]
        words = f"{blamed.message}; not restarted: {refused}" if refused else blamed.message
        return Condition("Failed", status=True, reason=blamed.kind, message=words)
    run = observed.job.run
    told = next((f for f in findings if is_crash(f) and run_of(f) == run), None)
    pod = pod_of(observed, told)
    if pod:
        words = last_words(observed, pod, told)
        words = f"not restarted: {refused}. {words}" if refused else words
        return Condition("Failed", status=True, reason="RankFailed", message=words)
    if known := known_failure(observed):
        return known
    reason = child.failed_reason or "JobFailed"
    return Condition("Failed", status=True, reason=reason, message=child.failed_message)


def not_restarted(observed: Observed, findings: tuple[Finding, ...], pause: Pause | None) -> str:
    """Say why a job that a rule would restart has failed instead; what was said of that stays."""
    job = observed.job
    if job.status.get("phase") == "Failed":
        return str(job.status.get("notRestarted", ""))
    if pause and pause.refused:
        return pause.refused
    crash = after_crash(job.rules, (finding for finding in findings if run_of(finding) == job.run))
    return refusal(job, crash) if crash else ""


def known_failure(observed: Observed) -> Condition | None:
    """Return what the status knows already: the pods with the last words may be deleted by now."""
    for old in observed.job.status.get("conditions") or ():
        if old["type"] == "Failed" and old["status"] == "True":
            return Condition("Failed", status=True, reason=old["reason"], message=old["message"])
    return None


def pod_of(observed: Observed, told: Finding | None) -> Pod | None:
    """Return the pod whose end to show: that of the blamed rank, else the first that failed."""
    first = first_failed(observed)
    if told and told.rank is not None:
        index = told.rank // observed.job.ranks_per_node
        first = tuple(pod for pod in observed.pods if pod.exit and pod.index == index) or first
    return first[0] if first else None


def last_words(observed: Observed, pod: Pod, told: Finding | None) -> str:
    """Tell exit code, rank and the last lines of a pod's trainer."""
    assert pod.exit  # noqa: S101 - `pod_of` yields no others
    text = f"pod {pod.name} (ranks {pod.index * observed.job.ranks_per_node}"
    last = (pod.index + 1) * observed.job.ranks_per_node - 1
    text += f" to {last})" if observed.job.ranks_per_node > 1 else ")"
    text = f"{text} ended with exit code {pod.exit.code}"
    if pod.exit.reason not in ("", "Error"):
        text += f" ({pod.exit.reason})"
    if told and told.evidence.get("source") != FROM_POD:
        text = f"rank {told.rank} failed: {told.message}; {text}"
        if trace := traceback_end(told, TRACEBACK):
            text += f"; its traceback ends:\n{trace}\n"
    return f"{text.rstrip()}; its last lines:\n{pod.exit.log}" if pod.exit.log else text.rstrip()
