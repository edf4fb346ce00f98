"""Keeps every TrainingJob as it should be: one task a job, woken by news, by its hub and by deadlines."""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from stepwarden_operator.actions import Action, WriteStatus
from stepwarden_operator.api import Api, ApiError
from stepwarden_operator.apply import Applier, Refused
from stepwarden_operator.hub import Hub, HubError
from stepwarden_operator.manifests.secret import token
from stepwarden_operator.metrics import HUB_ERRORS, RECONCILE_ERRORS, RECONCILE_SECONDS, STATUS_WRITES
from stepwarden_operator.names import JOB_LABEL
from stepwarden_operator.observe import Observed
from stepwarden_operator.poller import poll
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.refusals import Refusals
from stepwarden_operator.settings import Settings
from stepwarden_operator.status import unreadable
from stepwarden_operator.training_job import SpecError, read_training_job
from stepwarden_operator.view import Entry, Key, View, short_of_pods

AT_ONCE = 32  # jobs that are worked on at the same time
PROGRESS_EVERY = 5.0  # seconds between writes that only tell of progress
SHORT_AFTER = 2.0  # seconds without enough pods, after which to ask why
SHORT_AT_MOST = 300.0  # seconds between two such questions
AGAIN = 10.0  # seconds until a refusal that may pass is put to the test
BACKOFF_AT_MOST = 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Clock:
    """When things were done for one job, by a clock that never jumps."""

    progress: float = float("-inf")
    short: float | None = None  # since when there are too few pods


class Keeper:
    """The view, and the tasks that keep it true."""

    def __init__(self, api: Api, hub: Hub, settings: Settings) -> None:
        """Use these clients; nothing runs before `load`."""
        self.api, self.hub, self.settings = api, hub, settings
        self.view = View()
        self.applier = Applier(api, hub, settings)
        self.refusals = Refusals(api)
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.tasks: dict[Key, tuple[str, asyncio.Task[None]]] = {}

    async def load(self) -> None:
        """
        Read the children first.

        Without them an operator that has just started would take running jobs for new ones.
        """
        for job in await self.api.list("Job", labelSelector=JOB_LABEL):
            self.view.job(None, job)
        for pod in await self.api.list("Pod", labelSelector=JOB_LABEL):
            self.view.pod(None, pod)

    def watch(self, entry: Entry) -> None:
        """Have a task for an entry while its TrainingJob lives."""
        uid, task = self.tasks.get(entry.key, ("", None))
        going = entry.body is None or "deletionTimestamp" in entry.body["metadata"]
        if task and (going or uid != entry.uid):
            task.cancel()
            del self.tasks[entry.key]
        if not going and entry.key not in self.tasks:
            self.tasks[entry.key] = (entry.uid, asyncio.create_task(self.keep(entry)))

    async def close(self) -> None:
        """End all tasks."""
        tasks = [task for _, task in self.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self, entry: Entry) -> None:
        """Keep one job, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.ask(entry))
            clock, failures, wake = Clock(), 0, None
            while True:
                await sleep(entry, wake)
                entry.changed.clear()
                try:
                    async with self.slots:
                        with RECONCILE_SECONDS.time():
                            wake = await self.cycle(entry, clock)
                    failures = 0
                except Exception as error:  # a fault about one job must not end its keeper
                    failures += 1
                    wake = min(2.0**failures / 2, BACKOFF_AT_MOST)
                    RECONCILE_ERRORS.inc()
                    trace = None if isinstance(error, ApiError) else error
                    log.warning("%s/%s: %s; again in %.0f s", *entry.key, error, wake, exc_info=trace)

    async def ask(self, entry: Entry) -> None:
        """Ask the job's hub while the job lives."""
        try:
            asked = read_training_job(entry.body or {})
        except SpecError:
            return
        await poll(entry, self.hub, token(asked, self.settings.key))

    async def cycle(self, entry: Entry, clock: Clock) -> float | None:
        """Bring one job in line. Returns the seconds after which to look again; None: when told."""
        due = time.monotonic() >= clock.progress + PROGRESS_EVERY
        try:
            observed = entry.observe(progress_due=due)
        except SpecError as error:
            await self.refuse(entry, str(error))
            return None
        waits = [await self.ask_about_pods(entry, observed, clock)]
        if entry.pods_refused != observed.pods_refused:
            observed = entry.observe(progress_due=due)
        plan = reconcile(observed, time.time())
        waits += [await self.carry_out(plan.actions, observed, entry, clock)]
        if plan.wake is not None:
            waits.append(max(plan.wake - time.time(), 0.0))
        if entry.refusal and not entry.refusal.permanent:
            waits.append(AGAIN)
        return min((wait for wait in waits if wait is not None), default=None)

    async def carry_out(
        self, actions: Iterable[Action], observed: Observed, entry: Entry, clock: Clock
    ) -> float | None:
        """
        Carry out actions in their order. Returns seconds until another try, if one is needed.

        A hub that doesn't answer must not keep the status from being written.
        """
        again = None
        for action in actions:
            try:
                await self.applier.apply(action, observed.job, entry)
            except HubError as error:
                HUB_ERRORS.inc()
                log.warning("%s/%s: %s", *entry.key, error)
                again = 2.0
            except Refused:
                return 0.0
            if isinstance(action, WriteStatus) and "progress" in action.patch:
                clock.progress = time.monotonic()
        return again

    async def ask_about_pods(self, entry: Entry, observed: Observed, clock: Clock) -> float | None:
        """Find out why there are too few pods, once that has lasted. Returns when to ask again."""
        if not short_of_pods(observed):
            clock.short, entry.pods_refused = None, ""
            return None
        now = time.monotonic()
        if clock.short is None:
            clock.short = now
        lasted = now - clock.short
        if lasted < SHORT_AFTER:
            return SHORT_AFTER - lasted
        assert observed.child  # noqa: S101 - without one it isn't short of pods
        entry.pods_refused = await self.refusals.of(entry.key[0], observed.child.uid)
        return min(max(lasted, SHORT_AFTER), SHORT_AT_MOST)

    async def refuse(self, entry: Entry, sentence: str) -> None:
        """Say in the status that a spec can't be meant. The CRD refuses most such specs before."""
        assert entry.body  # noqa: S101 - a keeper lives only as long as its TrainingJob
        meta, old = entry.body["metadata"], entry.body.get("status") or {}
        if patch := unreadable(old, meta.get("generation", 0), sentence, time.time()):
            STATUS_WRITES.inc()
            path = ("TrainingJob", meta["namespace"], meta["name"])
            entry.take(await self.api.merge(*path, {"status": patch}, "/status"))


async def sleep(entry: Entry, seconds: float | None) -> None:
    """Wait for news about a job, or for some seconds."""
    try:
        async with asyncio.timeout(seconds):
            await entry.changed.wait()
    except TimeoutError:
        return
