"""
A sidecar's part in who is the hub: asks other pods, and brings about what the election decides.

While another pod is the hub, the link to it runs; while this one is, it looks for others that act too.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from stepwarden.answers import whole
from stepwarden_sidecar.election import Election, Follow, Lead, Role, Seek, questions
from stepwarden_sidecar.handover import Copy, fitting, inherit, lead, read_copy, step_down
from stepwarden_sidecar.link import LARGEST, HubLostError, Link, credentials
from stepwarden_sidecar.sidecar import Sidecar
from stepwarden_sidecar.store import replace
from stepwarden_sidecar.views import read_view, to_json

if TYPE_CHECKING:
    from stepwarden.wire import Finding

log = logging.getLogger(__name__)

SOON = 0.1  # seconds between two rounds of questions
ASK = aiohttp.ClientTimeout(total=0.4)
LOOK = 0.5  # seconds after which a hub looks for another one
BEAT = 0.5  # seconds that a standby's question waits at the hub: it hears the hub as often
WATCH = aiohttp.ClientTimeout(total=1.0)
AT_ONCE = 32  # pods that a new hub tells of itself at the same time
ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError)


class Succession:
    """The election's edges: sockets, tasks, and the file that keeps the term."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self.urls, self.me = sidecar.settings.candidates, sidecar.settings.pod
        self.file = sidecar.settings.directory / "state" / "term.json"
        term, led = load(self.file)
        sidecar.inherited.copied = led  # else its instruction may be an old one
        election = Election(me=self.me, pods=len(self.urls), since=sidecar.clock(), term=term)
        self.election = sidecar.election = election
        self.role: Role = Seek()
        self.link: Link | None = None
        self.links = AsyncExitStack()
        self.tasks: list[asyncio.Task[None]] = []
        self.left: tuple[Finding, ...] = ()  # settled here, while another pod was the hub already
        self.told: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Succession":  # noqa: PYI034 - Python 3.10 has no Self
        headers = credentials(self.sidecar.settings)
        connector = aiohttp.TCPConnector(limit=0)
        self.session = aiohttp.ClientSession(headers=headers, trust_env=False, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.unfollow()
        if self.told:
            self.told.cancel()
        await self.session.close()

    async def forever(self) -> None:
        """Know who is the hub, and be it when it is this pod's turn."""
        while True:
            seen = self.sidecar.views.count
            match self.role:
                case Follow():
                    await self.follow(seen)
                case Lead():
                    await asyncio.gather(*(self.ask(pod) for pod in self.rivals()))
                    await self.sidecar.views.wait(LOOK, seen)
                case Seek(hint=hint):
                    await self.seek(hint)
            await self.turn()

    async def turn(self) -> None:
        """Bring the sidecar in line with the election."""
        role, before = self.election.decide(self.sidecar.clock()), self.role
        self.role = role
        if role == before:
            return
        if isinstance(before, Lead):
            self.left = (*self.left, *step_down(self.sidecar))
            log.info("pod %d is the hub no more", self.me)
        if isinstance(role, Follow):
            await self.begin(role)
        if isinstance(role, Lead):
            save(self.file, role.term, led=True)
            log.info("pod %d is the hub, in term %d", self.me, role.term)
            lead(self.sidecar)
            self.told = asyncio.create_task(self.announce())

    async def seek(self, hint: int | None) -> None:
        """Ask who is the hub, a few pods at a time."""
        for pods in questions(self.election, hint):
            if any(await asyncio.gather(*(self.ask(pod) for pod in pods if pod != self.me))):
                break
        self.election.rounds += 1
        await asyncio.sleep(SOON)

    async def ask(self, pod: int) -> bool:
        """Tell one pod this one's view, and take in its own. False where it doesn't answer."""
        try:
            body = to_json(self.election.view(self.sidecar.clock()))
            url = f"{self.urls[pod]}/v1/view"
            async with self.session.post(url, data=body, timeout=ASK) as answer:
                answer.raise_for_status()
                view = read_view(await whole(answer, LARGEST))
        except ERRORS:
            return False
        self.election.heard(view, self.sidecar.clock())
        return view.pod == pod

    def rivals(self) -> Iterable[int]:
        """Return the pods that may act as well: those that come before this one."""
        return range(min(self.me, AT_ONCE))

    async def announce(self) -> None:
        """Tell all pods that this one is the hub: who lost the one before needs not look for it."""
        others = [pod for pod in range(len(self.urls)) if pod != self.me]
        for begin in range(0, len(others), AT_ONCE):
            await asyncio.gather(*(self.ask(pod) for pod in others[begin : begin + AT_ONCE]))

    async def begin(self, role: Follow) -> None:
        """Open the link to a hub, unless it is the one that was lost for a moment."""
        url = self.urls[role.hub]
        save(self.file, role.term, led=False)
        if self.link and self.link.hub == url:
            return
        await self.unfollow()
        self.sidecar.inherited.copied = False
        link = self.link = Link(self.sidecar, url, lasting=False)
        link.answered = self.answered
        await self.links.enter_async_context(link)
        log.info("pod %d is the hub, in term %d", role.hub, role.term)

    def answered(self) -> None:
        """Take in that the hub has answered."""
        self.election.hub_answered(self.sidecar.clock())

    async def follow(self, seen: int) -> None:
        """Talk with the hub until it is lost, or another pod tells a view."""
        link = self.link
        assert link  # noqa: S101 - begun when the role was taken
        if not self.tasks:
            talks = (link.push_forever(), link.listen_forever(), self.watch_forever(link))
            self.tasks = [asyncio.create_task(talk) for talk in talks]
        news = asyncio.create_task(self.sidecar.views.wait(LOOK, seen))
        done, _ = await asyncio.wait([news, *self.tasks], return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        lost = False
        for task in done - {news}:
            with suppress(HubLostError):
                task.result()
            lost = True
        if lost:
            await self.pause()
            self.election.lost()

    async def watch_forever(self, link: Link) -> None:
        """Keep a copy of what the hub knows, for as long as it wants that."""
        boot, cursor, after = "", "", 0
        while True:
            await self.leave(link)
            await link.standby.wait()
            query = {"boot": boot, "cursor": cursor, "after": str(after), "wait": str(BEAT)}
            try:
                async with self.session.get(f"{link.hub}/v1/copy", params=query, timeout=WATCH) as answer:
                    answer.raise_for_status()
                    copy = read_copy(await whole(answer, LARGEST)) if answer.status == 200 else None  # noqa: PLR2004 - HTTP's
            except ERRORS as error:
                raise HubLostError from error
            self.answered()
            if copy:
                inherit(self.sidecar, copy)
                boot, cursor, after = copy.boot, copy.cursor, copy.published

    async def leave(self, link: Link) -> None:
        """Tell the hub what was settled here while this pod acted as well."""
        while self.left:
            batch = fitting(self.left)
            body = Copy(boot="", cursor="", findings=batch).to_json()
            try:
                async with self.session.post(f"{link.hub}/v1/copy", data=body, timeout=WATCH) as answer:
                    answer.raise_for_status()
            except ERRORS as error:
                raise HubLostError from error
            self.left = self.left[len(batch) :]

    async def pause(self) -> None:
        """End the talks with the hub; what was delivered is remembered."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks = []

    async def unfollow(self) -> None:
        """Close the link."""
        await self.pause()
        await self.links.aclose()
        self.link = None


def load(path: Path) -> tuple[int, bool]:
    """Read the last term that this sidecar knew, and whether it was the hub then."""
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        return int(body["term"]), bool(body["led"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("can't read %s: %s; going on as in a new job", path, error)
    return 0, False


def save(path: Path, term: int, *, led: bool) -> None:
    """Write them."""
    try:
        replace(path, json.dumps({"term": term, "led": led}) + "\n")
    except OSError as error:
        log.warning("can't write %s: %s", path, error)
