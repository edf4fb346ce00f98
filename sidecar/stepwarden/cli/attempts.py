"""A run, and the runs after it where the policy starts it anew: each with ranks and a sidecar of its own."""

import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from stepwarden import wire
from stepwarden.cli import plan, screen, terminal
from stepwarden.cli.anew import Anew
from stepwarden.cli.fleet import Fleet
from stepwarden.cli.plan import Plan
from stepwarden.cli.say import say
from stepwarden.cli.sidecar import Sidecar
from stepwarden.cli.signals import Signals
from stepwarden.cli.supervisor import Supervisor

TICK = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it all ended."""

    code: int
    ended_by: str
    restarts: int


def run(prepared: Plan, folder: Path, scratch: Path, signals: Signals) -> Outcome:
    """Run until it ends well, or may not be started anew. Raises `UsageError`."""
    anew = Anew(bounds=prepared.restarts)
    while True:
        supervisor, code = attempt(prepared, folder, scratch / str(len(anew.done)), anew, signals)
        outcome = Outcome(code, supervisor.ended_by(), len(anew.done))
        decision = supervisor.restart(code)
        if decision is None:
            return outcome
        if why := anew.refusal(prepared.rules, decision):
            say(f"not started anew: {why}")
            return outcome
        wait, anew = anew.wait, anew.more(prepared.rules, decision)
        say(screen.restarted(decision, len(anew.done), anew.bounds.most, wait))
        if anew.rules(prepared.rules) != prepared.rules:
            say("no restart is left after it for such a fault")
        if (number := waited(wait, signals)) is not None:
            return Outcome(128 + number, f"signal {number}", outcome.restarts)


def attempt(
    prepared: Plan, folder: Path, directory: Path, anew: Anew, signals: Signals
) -> tuple[Supervisor, int]:
    """Run once. The folder that ranks and sidecar share is a new one: nothing of the last run is in it."""
    directory.mkdir()
    sidecar = Sidecar(directory, folder, prepared.ranks, secrets.token_urlsafe(24), prepared.probes)
    variables = plan.variables(prepared, directory)
    variables |= {wire.ENV_REPLAYS: str((folder / "replays").resolve())}
    fleet = Fleet(variables, lambda: sidecar.pid)
    supervisor = Supervisor(prepared, sidecar, fleet, interactive=terminal.interactive(), anew=anew)
    try:
        supervisor.start()
        return supervisor, supervisor.watch(signals)
    finally:
        fleet.clear()
        sidecar.stop()


def waited(seconds: float, signals: Signals) -> int | None:
    """Wait; return the signal that a person or the system ended that by."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number in signals.take():
            return int(number)
        time.sleep(TICK)
    return None
