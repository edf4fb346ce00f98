"""
A sidecar's link to the job's hub: it says what it knows, and hears the orders.

The hub may be away for as long as it likes: the link tries again, ever more slowly, and the
ranks go on under the orders that they have. What the hub missed it is told when it is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

import aiohttp

from stepwarden.answers import whole
from stepwarden.replica import Replica
from stepwarden.wire import Finding, Orders, PodReport, from_line, to_line
from stepwarden_sidecar import room
from stepwarden_sidecar.access import POD_HEADER
from stepwarden_sidecar.digest import digest
from stepwarden_sidecar.merge import Own
from stepwarden_sidecar.server import HUB_HEADER, STANDBY_HEADER
from stepwarden_sidecar.settings import Settings
from stepwarden_sidecar.sidecar import Sidecar

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds after which the hub is told that nothing changed
SOON = 0.02  # seconds over which changes are gathered
RANKS_A_SECOND = 1000.0  # whose steps a hub takes in with ease: with more, steps are told less often
WAIT = 20.0  # seconds of a long poll
PATIENCE = 5.0  # seconds that an answer may take
SHORT = 2.5  # the same where another pod may be the hub meanwhile
BACKOFF = (0.1, 5.0)  # seconds, first and last
LARGEST = 16 * 1024 * 1024  # bytes of an answer
RECORDS = 400  # of ranks' steps in one message, each a few hundred bytes
ROOM = 512 * 1024  # bytes of findings in one message; the hub takes twice as much


class HubLostError(Exception):
    """The hub doesn't answer, or is none any more: another pod may be it."""


class Link:
    """
    One sidecar's two conversations with its hub.

    `lasting`: no other pod can be the hub, so the link waits for this one. Else it raises `HubLostError`.
    """

    def __init__(self, sidecar: Sidecar, hub: str, *, lasting: bool = True) -> None:
        self.sidecar, self.hub, self.lasting = sidecar, hub, lasting
        self.patience = PATIENCE if lasting else SHORT
        self.standby = asyncio.Event()  # set while the hub wants this pod to keep a copy of what it knows
        self.answered: Callable[[], None] = lambda: None
        self.pace = min(max((sidecar.settings.ranks or 0) / RANKS_A_SECOND, SOON), EVERY)
        self.hub_boot: str | None = None
        self.delivered: set[Own] = set()
        self.away = False

    async def __aenter__(self) -> "Link":  # noqa: PYI034 - Python 3.10 has no Self
        headers = credentials(self.sidecar.settings)
        self.session = aiohttp.ClientSession(headers=headers, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def push_forever(self) -> None:
        """Tell the hub what is known: soon after a step, at once when more changed, and each second."""
        while True:
            news, urgent = self.sidecar.news.count, self.sidecar.urgent.count
            await self.with_patience(self.push)
            if not self.undelivered() and len(self.sidecar.unsent) < RECORDS:
                await self.sidecar.news.wait(EVERY, news)
                await self.sidecar.urgent.wait(self.pace, urgent)

    async def listen_forever(self) -> None:
        """Hear the orders whenever they change."""
        while True:
            await self.with_patience(self.listen)

    async def push(self) -> None:
        """Tell the hub about the ranks, and what it does not know yet of the findings."""
        batch = fitting(self.undelivered())
        replicas = list(islice(self.sidecar.unsent, RECORDS))
        report = pod_report(self.sidecar, batch.values(), replicas)
        timeout = aiohttp.ClientTimeout(total=self.patience)
        async with self.session.post(f"{self.hub}/v1/pods", data=to_line(report), timeout=timeout) as answer:
            answer.raise_for_status()
            boot = answer.headers.get(HUB_HEADER)
            wanted = STANDBY_HEADER in answer.headers
        if boot != self.hub_boot:  # it was started anew: what it was told before may be lost
            self.hub_boot, self.delivered = boot, set()
        self.keep_copy(wanted=wanted)
        sent(self.sidecar, report)
        self.delivered |= set(batch)
        self.delivered &= set(self.sidecar.findings)

    async def listen(self) -> None:
        """Wait for other orders than those that are known, and take them."""
        query = {"known": digest(self.sidecar.orders), "wait": str(WAIT)}
        timeout = aiohttp.ClientTimeout(total=WAIT + PATIENCE)
        async with self.session.get(f"{self.hub}/v1/orders", params=query, timeout=timeout) as answer:
            answer.raise_for_status()
            orders = from_line(await whole(answer, LARGEST))
        if isinstance(orders, Orders):
            self.sidecar.order(orders)
            self.sidecar.turn()

    def keep_copy(self, *, wanted: bool) -> None:
        """Note whether the hub wants this pod to keep a copy."""
        if wanted:
            self.standby.set()
        else:
            self.standby.clear()

    def undelivered(self) -> dict[Own, Finding]:
        """Return the findings that the hub has not confirmed."""
        return {key: each for key, each in self.sidecar.findings.items() if key not in self.delivered}

    async def with_patience(self, talk: Callable[[], Awaitable[None]]) -> None:
        """Talk until it works; say in the log when the hub goes away, and when it is back."""
        delay, last = BACKOFF
        while True:
            try:
                await talk()
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
                self.say(away=True, reason=f"{type(error).__name__}: {error}")
                if not self.lasting:
                    raise HubLostError from error
            else:
                self.say(away=False, reason="")
                self.answered()
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, last)

    def say(self, *, away: bool, reason: str) -> None:
        """Log a change of whether the hub answers."""
        if away != self.away:
            log.info("hub %s %s", self.hub, f"doesn't answer: {reason}" if away else "answers again")
        self.away = away


def credentials(settings: Settings) -> dict[str, str]:
    """Return the headers by which a sidecar is known."""
    return {"Authorization": f"Bearer {settings.token}", POD_HEADER: str(settings.pod)}


def pod_report(sidecar: Sidecar, findings: Iterable[Finding], replicas: Iterable[Replica]) -> PodReport:
    """Return what the hub should know of a pod: its ranks, their pulses, and these findings and steps."""
    now, pod = sidecar.clock(), sidecar.settings.pod
    return PodReport(
        pod=pod,
        ranks=tuple(rank.report(pod, now) for rank in sidecar.ranks),
        findings=tuple(findings),
        replicas=tuple(replicas),
        pulses=tuple(sidecar.beats.values()),
    )


def sent(sidecar: Sidecar, report: PodReport) -> None:
    """Drop what the hub was told; some of it may have been dropped already to make room."""
    for pulse in report.pulses:
        if sidecar.beats.get(pulse.rank) is pulse:
            del sidecar.beats[pulse.rank]
    told = set(map(id, report.replicas))
    while sidecar.unsent and id(sidecar.unsent[0]) in told:
        sidecar.unsent.popleft()


def fitting(findings: dict[Own, Finding]) -> dict[Own, Finding]:
    """Return as many of the findings, from the first, as one message has room for; one at least."""
    return dict(islice(findings.items(), room.first(findings.values(), ROOM)))
