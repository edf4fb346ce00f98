"""The few calls that the benchmarks make to an API server, many at a time."""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

AT_ONCE = 16  # requests under way
PATCH = {"Content-Type": "application/merge-patch+json"}


class Api:
    """An API server, as the user of a kubeconfig whose certificates are inline."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read the kubeconfig; JSON is YAML, and the harness writes it as JSON."""
        config = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self.tls = ssl.create_default_context(cadata=decode(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as pair:
            pair.write(decode(user["client-certificate-data"]) + decode(user["client-key-data"]))
            pair.flush()
            self.tls.load_cert_chain(pair.name)
        self.slots = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Self:
        """Open the connections."""
        self.session = aiohttp.ClientSession(self.server, connector=aiohttp.TCPConnector(ssl=self.tls))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self.session.close()

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make one call. Raises `RuntimeError` with what the server says where it refuses."""
        headers = PATCH if method == "PATCH" else {}
        async with self.slots, self.session.request(method, path, json=body, headers=headers) as answer:
            found: dict[str, Any] = await answer.json()
            if answer.status >= 300:  # noqa: PLR2004 - HTTP's own line between success and the rest
                raise RuntimeError(found.get("message", answer.reason))
            return found

    async def items(self, path: str) -> list[dict[str, Any]]:
        """List objects."""
        return list((await self.call("GET", path))["items"])

    async def all(self, calls: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Make many calls."""
        await asyncio.gather(*(self.call(*each) for each in calls))


def decode(text: str) -> str:
    """Read an inline certificate."""
    return base64.b64decode(text).decode()
