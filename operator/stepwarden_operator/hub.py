"""
A job's hub, the sidecar of one of its pods, as the operator talks to it. Knows no decision.

It may be broken, or hostile: its answers are bounded in size, in time, and in what they can say.
"""

import socket
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from stepwarden.answers import whole
from stepwarden.wire import DEFAULT_PORT, Instruction, JobReport, from_line, to_line
from stepwarden_operator.trust import SENTENCE, sound

POD_HEADER = "Stepwarden-Hub-Pod"  # in the answer of a sidecar that isn't the hub
LARGEST = 8 * 1024 * 1024  # bytes of an answer
IDLE, EVERY, PROBES = 5, 2, 3  # seconds of silence, between two probes, and how many: then a machine is gone
GRACE = 10.0  # seconds beyond a long poll's own wait
QUICK = aiohttp.ClientTimeout(total=5.0)

Request = AbstractAsyncContextManager[aiohttp.ClientResponse]


class HubError(Exception):
    """
    A hub can't be reached, or says what is no report. It may be starting, or gone with its pod.

    `hub` is the index of the pod that is the hub, where the one that was asked has said so.
    """

    def __init__(self, reason: str, hub: int | None = None) -> None:
        super().__init__(reason)
        self.hub = hub


class Hub:
    """A client of all hubs: one pool of connections, with no limit, as each job's poll holds one."""

    def __init__(self, port: int = DEFAULT_PORT) -> None:
        """Open the pool; must be called in the event loop."""
        self.port = port
        connector = aiohttp.TCPConnector(limit=0, socket_factory=watched)
        self.session = aiohttp.ClientSession(connector=connector, read_bufsize=2**16)

    async def report(self, address: str, token: str, version: str, wait: float) -> JobReport:
        """Ask for it: it comes once it is not `version`, or `wait` seconds later. Raises `HubError`."""
        timeout = aiohttp.ClientTimeout(total=wait + GRACE, sock_connect=QUICK.total)
        query = {"version": version, "wait": str(wait)}
        return await self.ask(self.request("GET", address, "job", token, timeout=timeout, params=query))

    async def instruct(self, address: str, token: str, instruction: Instruction) -> JobReport:
        """Tell it what the ranks should do. Raises `HubError`."""
        data = to_line(instruction)
        return await self.ask(self.request("PUT", address, "instruction", token, timeout=QUICK, data=data))

    def request(self, method: str, address: str, what: str, token: str, **options: Any) -> Request:
        """Prepare one request."""
        host = f"[{address}]" if ":" in address else address
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return self.session.request(
            method, f"http://{host}:{self.port}/v1/{what}", headers=headers, allow_redirects=False, **options
        )

    async def ask(self, request: Request) -> JobReport:
        """Make one request and read the report in its answer. Raises `HubError`."""
        try:
            async with request as answer:
                raw = await whole(answer, LARGEST)
                if answer.status != 200:  # noqa: PLR2004 - HTTP's
                    said = raw[:200].decode(errors="replace")
                    message = f"{answer.url} answered {answer.status}: {said}"
                    raise HubError(message, pod(answer.headers.get(POD_HEADER, "")))
            found = from_line(raw)
            if isinstance(found, JobReport):
                return sound(found)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise HubError(str(error)[:SENTENCE] or type(error).__name__) from error
        message = f"the hub answered with a {type(found).__name__}"
        raise HubError(message)

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()


def watched(address: tuple[Any, ...]) -> socket.socket:
    """Make a connection's socket: one that notices during a long poll that the other machine is gone."""
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", EVERY), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, option):  # not everywhere
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def pod(header: str) -> int | None:
    """Read which pod is the hub."""
    return int(header) if header.isdecimal() and len(header) <= 5 else None  # noqa: PLR2004 - figures
