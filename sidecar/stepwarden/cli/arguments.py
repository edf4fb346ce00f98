"""The arguments of `stepwarden run`: read, and checked as far as they stand for themselves."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepwarden import policy
from stepwarden.cli.failure import UsageError
from stepwarden.cli.rules import Mode
from stepwarden.reproducibility import MOST_SEED, MOST_THREADS, NOTHING, Reproducibility, whole
from stepwarden.wire import Containment

MOST_RESTARTS = 1000

DESCRIPTION = """\
Run a training script, or a TrainingJob manifest, on this machine, and hold every rank before a
poisoned update. The script is not changed; its stdout is what plain torchrun (or python, for one
rank) would give. Lines of stepwarden itself go to stderr."""

EPILOG = """\
--on-anomaly  observe  say it, and go on as if alone
              skip     go on without the update that the finding is about
              hold     hold every rank before that update; a person chooses what becomes of it, and
                       after --hold-timeout (10m) without an answer the run is stopped
              restart  end the ranks and start the run anew from its newest good checkpoint, at most
                       --max-restarts (3) times; then the run is stopped
              stop     end the run
Without it a script is held if stdin and stderr are a terminal, and only observed otherwise, so that
a script in a pipe never waits; a manifest says it by spec.onFinding.

exit codes    that of the training; 128+N if signal N ended it; 2 if nothing was started;
              3 if the run was stopped because of a finding; 130 after Ctrl-C"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person asked for. Either `manifest` or `command` is given."""

    manifest: Path | None = None
    command: tuple[str, ...] = ()
    module: bool = False
    nproc: int = 1
    nnodes: int = 1
    mode: Mode | None = None
    hold_timeout: float | None = None
    failure_grace: float | None = None
    containment: Containment | None = None
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reproducibility: Reproducibility = NOTHING
    report: Path | None = None
    checkpoints: Path | None = None
    max_restarts: int | None = None


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = (
        "stepwarden run [options] [--] train.py [arguments]\n"
        "       stepwarden run [options] -m module [arguments]\n"
        "       stepwarden run [options] -f job.yaml"
    )
    parser.add_argument(
        "-f", "--file", metavar="JOB.YAML", help="a TrainingJob, and the ConfigMaps it mounts"
    )
    parser.add_argument("-m", "--module", action="store_true", help="run a module instead of a script")
    parser.add_argument("--nproc", metavar="N", help="ranks on each node (default: 1)")
    parser.add_argument(
        "--nnodes", metavar="N", help="nodes, each its own torchrun on this machine (default: 1)"
    )
    parser.add_argument(
        "--on-anomaly", choices=("observe", "skip", "hold", "restart", "stop"), help="see below"
    )
    parser.add_argument(
        "--hold-timeout", metavar="TIME", help="how long a hold waits for a person, as in 90s or 10m"
    )
    parser.add_argument(
        "--failure-grace",
        metavar="TIME",
        help="how long the other ranks have to end once one failed, as in 2s (the default)",
    )
    parser.add_argument(
        "--checkpoint-dir",
        metavar="DIR",
        help="where the script keeps its checkpoints: STEPWARDEN_RESUME_FROM names it the newest one that is "
        "whole and finite",
    )
    parser.add_argument(
        "--max-restarts",
        metavar="N",
        help="start the run anew when a rank failed, at most so often (default: 0; 3 where a rule restarts)",
    )
    parser.add_argument(
        "--containment",
        choices=("strict", "deferred"),
        help="strict (the default): a bad update is known before it is applied, at the price of one small "
        "read a step on an accelerator; deferred: nothing waits, it is found one step late",
    )
    parser.add_argument(
        "--probe",
        metavar="NAME.PARAM=VALUE",
        action="append",
        default=[],
        help="set a probe's parameter, as in NonFiniteParameter.every=10 or NonFiniteLoss.enabled=false",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        help="seed Python, numpy and torch with N in every rank, DataLoader workers included, before the "
        "script's first line",
    )
    parser.add_argument("--threads", metavar="N", help="threads of each rank, for torch, OpenMP and MKL")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="deterministic algorithms only: torch raises where it has none for an operator",
    )
    parser.add_argument(
        "--report", metavar="DIR", help="the report's folder (default: a new stepwarden-report-N)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def options(parsed: argparse.Namespace) -> Options:
    """Make options of what argparse read. Raises `UsageError`."""
    command = tuple(parsed.command)
    if command[:1] == ("--",):
        command = command[1:]
    if parsed.file is None and not command:
        message = "give a script, as in `stepwarden run -- train.py`, or a manifest with -f"
        raise UsageError(message)
    if parsed.file is not None and (command or parsed.module or parsed.nproc or parsed.nnodes):
        message = "with -f the manifest says what runs: leave out the script, -m, --nproc and --nnodes"
        raise UsageError(message)
    return Options(
        manifest=None if parsed.file is None else Path(parsed.file),
        command=command,
        module=parsed.module,
        nproc=count(parsed.nproc, "--nproc"),
        nnodes=count(parsed.nnodes, "--nnodes"),
        mode=parsed.on_anomaly,
        hold_timeout=timeout(parsed.hold_timeout, "--hold-timeout"),
        failure_grace=timeout(parsed.failure_grace, "--failure-grace"),
        containment=parsed.containment,
        probes=probes(parsed.probe),
        reproducibility=Reproducibility(
            seed=number(parsed.seed, "--seed", 0, MOST_SEED),
            threads=number(parsed.threads, "--threads", 1, MOST_THREADS),
            deterministic=parsed.deterministic,
        ),
        report=None if parsed.report is None else Path(parsed.report),
        checkpoints=None if parsed.checkpoint_dir is None else Path(parsed.checkpoint_dir).absolute(),
        max_restarts=number(parsed.max_restarts, "--max-restarts", 0, MOST_RESTARTS),
    )


def count(text: str | None, name: str) -> int:
    """Read a number of processes."""
    if text is None:
        return 1
    if not text.isdecimal() or int(text) < 1:
        message = f"{name} {text}: give a whole number above 0"
        raise UsageError(message)
    return int(text)


def number(text: str | None, name: str, least: int, most: int) -> int | None:
    """Read a number that may be left out."""
    try:
        return whole(int(text) if text is not None and text.isdecimal() else text, name, least, most)
    except ValueError as error:
        raise UsageError(str(error)) from error


def timeout(text: str | None, name: str) -> float | None:
    """Read a duration, in seconds."""
    try:
        return None if text is None else policy.seconds(text)
    except policy.PolicyError as error:
        message = f"{name}: {error}"
        raise UsageError(message) from error


def probes(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read `NAME.PARAM=VALUE`; a value that is no JSON is a string."""
    found: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, dot, rest = setting.partition(".")
        parameter, equals, value = rest.partition("=")
        if not (name and dot and parameter and equals):
            message = f"--probe {setting}: write NAME.PARAM=VALUE, as in NonFiniteParameter.every=10"
            raise UsageError(message)
        try:
            found.setdefault(name, {})[parameter] = json.loads(value)
        except ValueError:
            found.setdefault(name, {})[parameter] = value
    return found
