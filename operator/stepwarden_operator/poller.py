"""Asks one job's hub, again and again: the only place where the operator waits for a job."""

import asyncio
import logging

from stepwarden.wire import JobReport
from stepwarden_operator.hub import Hub, HubError
from stepwarden_operator.metrics import HUB_ERRORS
from stepwarden_operator.observe import Pod
from stepwarden_operator.training_job import SpecError, read_training_job
from stepwarden_operator.view import Entry

RUNNING_WAIT = 5.0  # seconds: how old the progress in a status may be
QUIET_WAIT = 300.0  # while nothing moves, only changes matter, and the hub tells those at once
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)

log = logging.getLogger(__name__)


async def poll(entry: Entry, hub: Hub, token: str) -> None:
    """Keep an entry's report fresh, for ever."""
    failures = 0
    while True:
        entry.pods_changed.clear()
        pod = hub_pod(entry)
        if pod is None:
            await entry.pods_changed.wait()
            continue
        try:
            await ask(entry, hub, token, pod)
            failures = 0
        except HubError as error:
            failures += 1
            note(entry, pod, error, failures)
            await pause(entry, BACKOFF[min(failures, len(BACKOFF)) - 1])


async def ask(entry: Entry, hub: Hub, token: str, pod: Pod) -> None:
    """Ask once, and wake the entry's keeper where the answer is news. Raises `HubError`."""
    known = entry.report if entry.report_pod == pod.uid else None
    wait = RUNNING_WAIT if known is None or moving(known) else QUIET_WAIT
    report = await hub.report(pod.ip, token, known.version if known else "", wait)
    news = known is None or moving(report) or report.version != known.version
    entry.report, entry.report_pod = report, pod.uid
    if news:
        entry.changed.set()


def note(entry: Entry, pod: Pod, error: HubError, failures: int) -> None:
    """Log when a hub falls silent, once; while its pod starts or ends that is no error."""
    if not pod.running or pod.terminating:
        return
    HUB_ERRORS.inc()
    if failures == 1:
        log.warning("%s/%s: its hub does not answer: %s", *entry.key, error)


async def pause(entry: Entry, seconds: float) -> None:
    """Wait before asking again, unless the pods change."""
    try:
        async with asyncio.timeout(seconds):
            await entry.pods_changed.wait()
    except TimeoutError:
        return


def moving(report: JobReport) -> bool:
    """Whether there is progress to show."""
    return any(rank.state == "running" for rank in report.ranks) or not report.ranks


def hub_pod(entry: Entry) -> Pod | None:
    """Return the pod whose sidecar to ask: that of index 0, while it lives."""
    if entry.body is None:
        return None
    try:
        pods = entry.read_pods(read_training_job(entry.body), entry.child)
    except SpecError:
        return None
    found = [pod for pod in pods if pod.ip and not pod.finished]
    return min(found, key=lambda pod: (pod.terminating, pod.index), default=None)
