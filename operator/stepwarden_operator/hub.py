"""A job's hub, the sidecar of its pod 0, as the operator talks to it. Knows no decision."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from stepwarden.wire import DEFAULT_PORT, Instruction, JobReport, from_line, to_line

GRACE = 10.0  # seconds beyond a long poll's own wait
QUICK = aiohttp.ClientTimeout(total=5.0)

Request = AbstractAsyncContextManager[aiohttp.ClientResponse]


class HubError(Exception):
    """A hub can't be reached, or says what is no report. It may be starting, or gone with its pod."""


class Hub:
    """A client of all hubs: one pool of connections, with no limit, as each job's poll holds one."""

    def __init__(self, port: int = DEFAULT_PORT) -> None:
        """Open the pool; must be called in the event loop."""
        self.port = port
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

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
            method, f"http://{host}:{self.port}/v1/{what}", headers=headers, **options
        )

    async def ask(self, request: Request) -> JobReport:
        """Make one request and read the report in its answer. Raises `HubError`."""
        try:
            async with request as answer:
                text = await answer.text()
                if answer.status != 200:  # noqa: PLR2004 - HTTP's
                    message = f"{answer.url} answered {answer.status}: {text[:200]}"
                    raise HubError(message)
            found = from_line(text)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise HubError(str(error) or type(error).__name__) from error
        if not isinstance(found, JobReport):
            message = f"the hub answered with a {type(found).__name__}"
            raise HubError(message)
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()
