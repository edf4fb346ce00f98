"""What the Job controller was told when it made pods and there were too few: quota, admission."""

import asyncio
import time

from stepwarden_operator.api import Api, ApiError

FRESH = 2.0  # seconds for which one answer serves all jobs of a namespace
SELECTOR = "involvedObject.kind=Job,reason=FailedCreate"


class Refusals:
    """Reads Events, a namespace at a time; asked only about jobs that have waited for pods."""

    def __init__(self, api: Api) -> None:
        """Ask this API."""
        self.api = api
        self.known: dict[str, tuple[float, dict[str, str]]] = {}
        self.locks: dict[str, asyncio.Lock] = {}

    async def of(self, namespace: str, job_uid: str) -> str:
        """Return the last refusal of a Job's pods; empty where there is none."""
        async with self.locks.setdefault(namespace, asyncio.Lock()):
            when, found = self.known.get(namespace, (0.0, {}))
            if time.monotonic() > when + FRESH:
                found = await self.look(namespace)
                self.known[namespace] = (time.monotonic(), found)
        return found.get(job_uid, "")

    async def look(self, namespace: str) -> dict[str, str]:
        """Read the newest refusal by the Job's uid. Without an answer there is none to show."""
        try:
            events = await self.api.list("Event", namespace, fieldSelector=SELECTOR)
        except ApiError:
            return {}
        events.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
        return {event["involvedObject"].get("uid", ""): event.get("message", "") for event in events}
