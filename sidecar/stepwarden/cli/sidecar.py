"""The sidecar of this machine: started, and started again when it dies. The training goes on meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwarden import wire
from stepwarden.cli.failure import UsageError
from stepwarden.cli.hub import Hub
from stepwarden.cli.processes import POLL, die_with_parent
from stepwarden.cli.say import say

READY = 20.0  # seconds that its start may take
AGAIN = 1.0  # seconds between two starts, doubled each time
PORT = "port"  # the file in which it says its port


class Sidecar:
    """The process, and the hub that it serves."""

    def __init__(
        self, directory: Path, report: Path, ranks: int, token: str, probes: Mapping[str, Any]
    ) -> None:
        self.directory, self.log, self.token = directory, report / "sidecar.log", token
        self.variables = {
            wire.ENV_DIRECTORY: str(directory),
            wire.ENV_TOKEN: token,
            wire.ENV_RANKS: str(ranks),
            wire.ENV_PROBES: json.dumps(probes),
            wire.ENV_POD: "0",
            wire.ENV_PORT: "0",
            wire.ENV_REPORT: str(report),
            "STEPWARDEN_BIND": "127.0.0.1",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.hub: Hub | None = None
        self.wait, self.next_start = AGAIN, 0.0

    def start(self) -> None:
        """Start the process; it listens a moment later."""
        (self.directory / PORT).unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stepwarden_sidecar"],
                env={k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")} | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is not for it: it has last words to write
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - this process has one thread
            )

    def listening(self) -> bool:
        """Whether it can be asked, and the ranks can attach."""
        if self.hub is None and (self.directory / wire.SIDECAR_SOCKET).exists():
            with suppress(OSError, ValueError):
                self.hub = Hub(int((self.directory / PORT).read_text(encoding="ascii")), self.token)
        return self.hub is not None

    def wait_ready(self) -> None:
        """Wait until it listens. Raises `UsageError` where it doesn't come up."""
        deadline = time.monotonic() + READY
        while not self.listening():
            if not self.alive() or time.monotonic() > deadline:
                lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
                message = f"the sidecar did not start: {lines[-1] if lines else f'see {self.log}'}"
                raise UsageError(message)
            time.sleep(POLL)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def keep_up(self) -> None:
        """Start it again when it died; not at once each time."""
        if self.alive() or time.monotonic() < self.next_start:
            self.listening()
            return
        if self.hub:
            say("the sidecar has ended: the training goes on, and it is started again")
        self.forget()
        self.start()
        self.next_start, self.wait = time.monotonic() + self.wait, min(2 * self.wait, 30.0)

    def forget(self) -> None:
        """Drop the hub of a process that is gone."""
        if self.hub:
            self.hub.close()
        self.hub = None

    def stop(self) -> None:
        """End it, and wait for its last words."""
        self.forget()
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        """Id of the process; 0 before the first start."""
        return self.process.pid if self.process else 0
