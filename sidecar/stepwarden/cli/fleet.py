"""The groups of a run: started together, and ended together when one fails or the run is to end."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stepwarden import wire
from stepwarden.cli import exits, processes
from stepwarden.cli.failure import UsageError
from stepwarden.cli.groups import Group

PEER_GRACE = 0.8  # seconds from SIGTERM to SIGKILL for what outlives a failure's grace period
TERM_GRACE = 5.0  # seconds from SIGTERM to SIGKILL
INT_GRACE = 30.0  # seconds after Ctrl-C, which torchrun gives its ranks too


class Fleet:
    """
    The groups' processes. `spared` names processes of ours that a kill leaves alone.

    `variables` are those of the ranks: the folder that they share with the sidecar, and the grace period.
    """

    def __init__(self, variables: Mapping[str, str], spared: Callable[[], int]) -> None:
        self.variables, self.spared = variables, spared
        self.directory = Path(variables[wire.ENV_DIRECTORY])
        self.grace = float(variables[wire.ENV_GRACE])
        self.running: list[processes.Process] = []
        self.failure: int | None = None  # exit code of the first group that failed
        self.kill_at: float | None = None
        self.end_at: float | None = None

    def start(self, groups: Sequence[Group]) -> None:
        """Start all. Raises `UsageError` where one can't be."""
        for group in groups:
            env = {**os.environ, **self.variables, **group.env}
            try:
                self.running.append(processes.start(group.command, env, group.directory))
            except OSError as error:
                message = f"can't start {error.filename or group.command[0]}: {error.strerror}"
                raise UsageError(message) from error

    def poll(self) -> bool:
        """Take leave of groups that ended, do what is due; False once all have ended."""
        now = time.monotonic()
        for process in list(self.running):
            if (code := process.poll()) is not None:
                self.running.remove(process)
                exits.ended(self.directory, process.pid, code)
                self.failed(code, now)
        if self.end_at is not None and now >= self.end_at:
            self.end(signal.SIGTERM, PEER_GRACE)
        if self.kill_at is not None and now >= self.kill_at:
            self.kill()
        return bool(self.running)

    def failed(self, code: int, now: float) -> None:
        """Note how a group ended; when it failed, the others can't go on for long."""
        if code != 0 and self.failure is None:
            self.failure = processes.exit_code(code)
            self.end_at = now + self.grace

    def end(self, number: signal.Signals | None, grace: float) -> None:
        """Send the groups a signal (None: they have it already), and kill what is left after a while."""
        if number is not None:
            exits.ending(self.directory, processes.below([self.spared()]), number)
            processes.send((process.pid for process in self.running), number)
        self.end_at = None
        due = time.monotonic() + grace
        self.kill_at = due if self.kill_at is None else min(self.kill_at, due)

    def kill(self) -> None:
        """Kill all that runs below, whoever started it."""
        doomed = {process.pid for process in self.running} | processes.below([self.spared()])
        exits.ending(self.directory, doomed, signal.SIGKILL)
        processes.send(doomed, signal.SIGKILL)

    def clear(self) -> None:
        """End what the groups left behind, and take leave of it."""
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []
        processes.sweep([self.spared()], TERM_GRACE)
