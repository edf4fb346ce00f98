"""Asks the hub, which is the one sidecar of this machine, and tells it what was decided."""

import http.client
import json
from contextlib import suppress

from stepwarden.wire import Instruction, JobReport, from_line, to_line

TIMEOUT = 2.0  # seconds that an answer may take


class Hub:
    """The hub's HTTP side. It may be gone at any time: then there is no answer."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token = port, token
        self.connection: http.client.HTTPConnection | None = None

    def report(self, version: str | None = None, wait: float = 0.0) -> JobReport | None:
        """Return what it knows: at once, or as soon as it is another version, for so long at most."""
        query = "" if version is None else f"?version={version}&wait={wait}"
        return self.ask("GET", f"/v1/job{query}", None)

    def instruct(self, instruction: Instruction) -> JobReport | None:
        """Tell it what is wanted, and return what it knows then."""
        return self.ask("PUT", "/v1/instruction", to_line(instruction))

    def ask(self, method: str, path: str, body: str | None) -> JobReport | None:
        """Make one request; None where there is no answer that can be read."""
        # Not urllib.request: that would ask the proxy of the environment for 127.0.0.1.
        self.connection = self.connection or http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=TIMEOUT
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse().read()
            said = from_line(answer)
        except (OSError, http.client.HTTPException, ValueError, json.JSONDecodeError):
            self.close()
            return None
        return said if isinstance(said, JobReport) else None

    def close(self) -> None:
        """Close the connection."""
        if self.connection:
            with suppress(OSError):
                self.connection.close()
        self.connection = None
