"""
The Kubernetes API, in the few calls that the operator makes. Knows no decision.

It stands on `kubernetes.aio`'s client for configuration, certificates and tokens, and
speaks plain dictionaries: the typed models cost ten times the time and memory here.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from stepwarden_operator.names import API_VERSION, MANAGER, PLURAL

TIMEOUT = aiohttp.ClientTimeout(total=30)
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML

PATHS = {
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "Event": ("api/v1", "events"),
    "Pod": ("api/v1", "pods"),
    "Job": ("apis/batch/v1", "jobs"),
    "TrainingJob": (f"apis/{API_VERSION}", PLURAL),
}


class ApiError(Exception):
    """The API server said no. `status` is HTTP's; 0 where it could not be asked at all."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Keep what it said."""
        super().__init__(message)
        self.status = status
        self.reason = reason


class Api:
    """A shared client: one pool of connections, kept alive."""

    def __init__(self, client: ApiClient) -> None:
        """Use a configured client."""
        self.client = client

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object. 409 if there is one of that name."""
        return await self.call("POST", self.path(body["kind"], body["metadata"]["namespace"]), body)

    async def apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object or bring it in line, by server-side apply. 409 where it is someone else's."""
        meta = body["metadata"]
        path = self.path(body["kind"], meta["namespace"], meta["name"])
        return await self.call("PATCH", path, body, APPLY, {"fieldManager": MANAGER})

    async def merge(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, Any], part: str = ""
    ) -> dict[str, Any]:
        """Change some fields of an object, or of its `part` (as in `/status`)."""
        path = self.path(kind, namespace, name) + part
        return await self.call("PATCH", path, patch, MERGE, {"fieldManager": MANAGER})

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Read an object."""
        return await self.call("GET", self.path(kind, namespace, name))

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object of this uid, what it owns after it. 409 where another one has the name by now."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        await self.call("DELETE", self.path(kind, namespace, name), body)

    async def list(self, kind: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        """List objects, of all namespaces if none is given."""
        found = await self.call("GET", self.path(kind, namespace), query=query)
        return list(found.get("items") or ())

    def path(self, kind: str, namespace: str, name: str = "") -> str:
        """Return where a kind's objects, or one of them, are found."""
        group, plural = PATHS[kind]
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/{group}{within}/{plural}" + (f"/{name}" if name else "")

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make one call. Raises `ApiError`."""
        headers = {"Content-Type": content_type, "Accept": JSON}
        settings = await self.client.configuration.auth_settings()
        if bearer := settings.get("BearerToken"):
            headers[bearer["key"]] = bearer["value"]
        url = f"{self.client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = await self.client.rest_client.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=TIMEOUT
            )
            found: dict[str, Any] = await answer.response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            message = f"{method} {path}: {error or type(error).__name__}"
            raise ApiError(0, "Unreachable", message) from error
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's
            raise ApiError(answer.status, found.get("reason", ""), found.get("message", str(found)))
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()  # type: ignore[no-untyped-call]
