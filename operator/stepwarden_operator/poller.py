"""Asks one job's hub, again and again: the only place where the operator waits for a job."""

import asyncio
import logging
from collections.abc import Iterable

from stepwarden.wire import JobReport
from stepwarden_operator.hub import Hub, HubError
from stepwarden_operator.metrics import HUB_ERRORS
from stepwarden_operator.observe import Pod
from stepwarden_operator.training_job import SpecError, read_training_job
from stepwarden_operator.view import Entry

RUNNING_WAIT = 5.0  # seconds: how old the progress in a status may be
QUIET_WAIT = 300.0  # while nothing moves, only changes matter, and the hub tells those at once
BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0)
DETOURS = 3  # times that the pod which is named as the hub is asked at once: pods may name each other

log = logging.getLogger(__name__)


async def poll(entry: Entry, hub: Hub, token: str) -> None:
    """Keep an entry's report fresh, for ever."""
    failures, hub_index = 0, None
    while True:
        entry.pods_changed.clear()
        pod = hub_pod(entry, hub_index, failures)
        if pod is None:
            await entry.pods_changed.wait()
            continue
        try:
            await ask(entry, hub, token, pod)
            failures, hub_index = 0, pod.index
        except HubError as error:
            failures += 1
            note(entry, pod, error, failures)
            hub_index = error.hub
            at_once = error.hub not in (None, pod.index) and failures <= DETOURS
            await pause(entry, 0.0 if at_once else BACKOFF[min(failures, len(BACKOFF)) - 1])


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


def hub_pod(entry: Entry, hub: int | None, failures: int) -> Pod | None:
    """Return the pod whose sidecar to ask, of those that a job has."""
    if entry.body is None:
        return None
    try:
        pods = entry.read_pods(read_training_job(entry.body), entry.child)
    except SpecError:
        return None
    return choose(pods, hub, failures)


def choose(pods: Iterable[Pod], hub: int | None, failures: int) -> Pod | None:
    """
    Return the pod to ask: the one that is the hub, as far as known, else the first.

    Each failure moves on to the next, so that every pod's turn comes.
    """
    found = sorted(
        (pod for pod in pods if pod.ip and not pod.finished), key=lambda pod: (pod.terminating, pod.index)
    )
    known = [pod for pod in found if pod.index == hub and not pod.terminating]
    return (known or found[failures % len(found) :])[0] if found else None
