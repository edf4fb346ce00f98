"""A job's findings: what its status remembers, joined by what its hub and its pods say now. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepwarden.attempt import Moment, moment
from stepwarden.encoding import plain
from stepwarden.failure import is_consequence, is_crash
from stepwarden.policy import SEVERITIES
from stepwarden.wire import Finding, from_dict, to_dict
from stepwarden_operator.observe import Observed, Pod
from stepwarden_operator.restart import stale

KEPT = 20
EVIDENCE_CHARACTERS = 2048  # of one string: a status must stay small, a traceback's end says most
Key = tuple[int, Moment, str]  # run, attempt and step, kind
FROM_POD = "pod"  # evidence.source of a RankFailed that no agent lived to tell


def remembered(status: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Read the findings that a status holds."""
    return tuple(from_dict(Finding, raw) for raw in status.get("findings") or ())


def run_of(finding: Finding) -> int:
    """Return the run that a finding belongs to: a job begins anew after a suspension, at step 0."""
    return int(finding.evidence.get("run", 0))


def stamped(finding: Finding, run: int) -> Finding:
    """Say in a finding's evidence which run it belongs to; of the first, nothing is said."""
    return replace(finding, evidence={**finding.evidence, "run": run}) if run else finding


def merge(old: Iterable[Finding], new: Iterable[Finding]) -> tuple[Finding, ...]:
    """Join findings by run, attempt, step and kind, in that order; the newer word about one wins."""
    joined: dict[Key, Finding] = {}
    for finding in (*old, *new):
        if not outranked(finding, joined.get(key(finding))):
            joined[key(finding)] = finding
    return without_hearsay(tuple(joined[one] for one in sorted(joined)))


def key(finding: Finding) -> Key:
    """Return what makes two words about a finding words about the same one."""
    return run_of(finding), moment(finding), finding.kind


def outranked(finding: Finding, known: Finding | None) -> bool:
    """Whether a rank's failure is no better word than that of another rank which failed first."""
    return (
        known is not None
        and known.kind == "RankFailed"
        and known.rank != finding.rank
        and known.evidence.get("source") != FROM_POD
        and SEVERITIES.index(known.severity) >= SEVERITIES.index(finding.severity)
    )


def traceback_end(finding: Finding, characters: int) -> str:
    """Return the last whole lines of a failure's traceback, as many as fit."""
    lines = str(finding.evidence.get("traceback") or "").strip("\n").splitlines()
    text = ""
    while lines and len(lines[-1]) + 1 + len(text) <= characters:
        text = f"{lines.pop()}\n{text}"
    return text.rstrip("\n")


def count(status: Mapping[str, Any], findings: Sequence[Finding]) -> int:
    """
    Count the findings that there ever were.

    Where a status has let go of the first ones, the hub's word about those is nothing new.
    """
    old, known = remembered(status), int(status.get("findingsCount", 0))
    if known <= len(old):
        return max(known, len(findings))
    kept = {key(finding) for finding in old}
    return known + sum(key(finding) > min(kept) and key(finding) not in kept for finding in findings)


def without_hearsay(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Drop the operator's own RankFailed of a run where an agent has told of one, with its traceback."""
    crashes = [finding for finding in findings if is_crash(finding)]
    told = {run_of(finding) for finding in crashes if finding.evidence.get("source") != FROM_POD}
    ours = [f for f in crashes if f.evidence.get("source") == FROM_POD and run_of(f) in told]
    return tuple(finding for finding in findings if finding not in ours)


def current(observed: Observed, *, failed: bool) -> tuple[Finding, ...]:
    """Return all findings that are known of a job, oldest first."""
    status = observed.job.status
    old = remembered(status)
    left = [finding for pod in observed.pods for finding in pod.left]
    new = [*left, *(observed.report.findings if observed.report else ())]
    run = observed.job.run - stale(observed)  # pods that a restart takes the place of may still have a say
    known = merge(old, (stamped(finding, run) for finding in new if not is_consequence(finding)))
    if failed and not any(is_crash(finding) and run_of(finding) == run for finding in known):
        step = (status.get("progress") or {}).get("step", 0)
        known += tuple(stamped(rank_failed(observed, pod, step), run) for pod in first_failed(observed))
    return known


def first_failed(observed: Observed) -> tuple[Pod, ...]:
    """Return the pod that ended badly first, if any. One that is deleted may have been told to end."""
    dead = [pod for pod in observed.pods if pod.exit and not pod.disrupted]
    return tuple(sorted(dead, key=order)[:1])


def order(pod: Pod) -> tuple[bool, str, int]:
    """Sort pods by who is to blame."""
    return pod.terminating, pod.exit.finished if pod.exit else "", pod.index


def rank_failed(observed: Observed, pod: Pod, step: int) -> Finding:
    """Say that a pod's trainer ended badly, where no agent lived to say so."""
    assert pod.exit  # noqa: S101 - first_failed yields no others
    first = pod.index * observed.job.ranks_per_node
    ranks = tuple(range(first, first + observed.job.ranks_per_node))
    why = f" ({pod.exit.reason})" if pod.exit.reason not in ("", "Error") else ""
    return Finding(
        kind="RankFailed",
        severity="critical",
        step=max(step, 0),
        rank=first if len(ranks) == 1 else None,
        ranks=ranks,
        message=f"{ranks_text(ranks)} in pod {pod.name} ended with exit code {pod.exit.code}{why}",
        evidence={"source": FROM_POD, "exit_code": pod.exit.code, "pod": pod.name, "log": pod.exit.log},
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Name ranks in a sentence."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"one of the ranks {ranks[0]} to {ranks[-1]}"


def label(finding: Finding) -> str:
    """Put a finding in a few words."""
    where = f", rank {finding.rank}" if finding.rank is not None else ""
    return f"{finding.kind} at step {finding.step}{where}"


def news(status: Mapping[str, Any], findings: Sequence[Finding], now: str) -> str | None:
    """Return when the last new finding came: now, if the status doesn't know one of them."""
    known = {key(finding) for finding in remembered(status)}
    new = any(key(finding) not in known for finding in findings[-KEPT:])
    found: str | None = now if new else status.get("lastFindingTime")
    return found


def to_status(finding: Finding) -> dict[str, Any]:
    """Write a finding for the status: plain JSON, long strings cut to their end."""
    body = to_dict(finding)
    body["evidence"] = plain(cut(body["evidence"]))
    body["message"] = body["message"][:EVIDENCE_CHARACTERS]
    return body


def cut(value: Any) -> Any:
    """Cut the strings in some evidence."""
    if isinstance(value, str):
        return value[-EVIDENCE_CHARACTERS:]
    if isinstance(value, Mapping):
        return {key: cut(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cut(item) for item in value[:64]]
    return value
