"""The story that `kubectl describe` tells, as the status implies it. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from stepwarden.wire import Finding
from stepwarden_operator.actions import Announce
from stepwarden_operator.findings import key, label, remembered, traceback_end
from stepwarden_operator.names import API_VERSION, KIND, MANAGER
from stepwarden_operator.observe import Observed, seconds_of
from stepwarden_operator.training_job import TrainingJob

NEWS = 600.0  # seconds: what is older isn't told any more by an operator that has just started
MESSAGE_CHARACTERS = 1000  # the API takes 1024

ORDER = (
    "Created",
    "Started",
    "FindingMade",
    "Held",
    "Resumed",
    "Suspended",
    "Restarted",
    "Completed",
    "Failed",
)
REASONS = {  # condition: (Event's reason when it comes true, type)
    "PodsReady": ("Started", "Normal"),
    "Held": ("Held", "Warning"),
    "Suspended": ("Suspended", "Normal"),
    "Complete": ("Completed", "Normal"),
    "Failed": ("Failed", "Warning"),
}


def story(observed: Observed, status: Mapping[str, Any], now: float) -> Iterator[Announce]:
    """Yield every Event that a status implies, that is still news, and that isn't made yet."""
    for event in (*beginning(observed), *findings(status), *transitions(status)):
        new = event_name(observed.job, event) not in observed.announced
        if new and seconds_of(event.time) > now - NEWS:
            yield event


def beginning(observed: Observed) -> Iterator[Announce]:
    """Tell that the children were made, or the Job made anew."""
    child = observed.child
    if child and child.created and child.restarts:
        last = observed.job.status.get("lastRestart") or {}
        which = f"restart {child.restarts} of {observed.job.restarts.most}"
        message = f"{which}: {last.get('reason', '')}: {last.get('message', '')}"
        yield Announce(reason="Restarted", key=child.uid, message=message, time=child.created, type="Warning")
    elif child and child.created:
        pods = f"{observed.job.num_nodes} pods, {observed.job.ranks} ranks"
        message = f"created Job {observed.job.name} with its Service: {pods}"
        yield Announce(reason="Created", key=child.uid, message=message, time=child.created)


def findings(status: Mapping[str, Any]) -> Iterator[Announce]:
    """Tell of each finding, dated from when the last one came."""
    for finding in remembered(status):
        yield Announce(
            reason="FindingMade",
            key="/".join(map(str, key(finding))),
            message=said(finding),
            time=status["lastFindingTime"],
            type="Normal" if finding.severity == "info" else "Warning",
        )


def said(finding: Finding) -> str:
    """Put a finding in words: of a rank's failure with the end of its traceback."""
    head = f"{label(finding)}: {finding.message}"
    trace = traceback_end(finding, MESSAGE_CHARACTERS - len(head) - 1)
    return f"{head}\n{trace}" if trace else head


def transitions(status: Mapping[str, Any]) -> Iterator[Announce]:
    """Tell of the conditions that came true, and of holds and suspensions that are over."""
    for condition in status.get("conditions") or ():
        kind, true, since = condition["type"], condition["status"] == "True", condition["lastTransitionTime"]
        if true and kind in REASONS:
            reason, level = REASONS[kind]
            yield tell(reason, kind, condition, level)
        elif kind == "Accepted" and not true:
            yield tell(condition["reason"], kind, condition, "Warning")
        elif condition["reason"] == "Resumed":
            yield Announce(reason="Resumed", key=f"{kind}/{since}", message=condition["message"], time=since)


def tell(reason: str, kind: str, condition: Mapping[str, Any], level: Any) -> Announce:
    """Put a condition that came true as an Event."""
    since = condition["lastTransitionTime"]
    return Announce(
        reason=reason, key=f"{kind}/{since}", message=condition["message"], time=since, type=level
    )


def event_name(job: TrainingJob, event: Announce) -> str:
    """
    Name an Event by its occasion, so that it can't be made twice.

    Those of one second are listed by name: the first figure puts them in the story's order.
    """
    digest = hashlib.sha256(f"{job.uid}/{event.reason}/{event.key}".encode()).hexdigest()[:16]
    place = ORDER.index(event.reason) if event.reason in ORDER else 0
    return f"{job.name}.{place}{digest}"


def event_body(job: TrainingJob, event: Announce) -> dict[str, Any]:
    """Build the Event object."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(job, event), "namespace": job.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
        "reason": event.reason,
        "message": event.message[:MESSAGE_CHARACTERS],
        "type": event.type,
        "firstTimestamp": event.time,
        "lastTimestamp": event.time,
        "count": 1,
        "source": {"component": MANAGER},
    }
