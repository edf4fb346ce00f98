"""What a run consists of: a person's options, or a manifest, made into groups, rules and a title."""

import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepwarden import policy, wire
from stepwarden.cli import documents, groups, manifest, rules, volumes
from stepwarden.cli.arguments import Options
from stepwarden.cli.failure import UsageError
from stepwarden.cli.groups import Group
from stepwarden.cli.manifest import Manifest
from stepwarden.probes import settings
from stepwarden.reproducibility import NOTHING, Reproducibility
from stepwarden.reproducibility import variables as reproducing
from stepwarden.restarts import Restarts

# Nobody else needs this machine meanwhile, and a person may be waiting.
LOCAL_RESTARTS = Restarts(backoff=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    All that a run needs to know.

    `notes` are said before it starts; `live` asks for progress lines;
    `hold` starts held, and goes on after `hold_timeout` where nobody can be asked.
    """

    title: str
    groups: tuple[Group, ...]
    ranks: int
    rules: tuple[policy.Rule, ...]
    probes: Mapping[str, Mapping[str, Any]]
    containment: wire.Containment = "strict"
    reproducibility: Reproducibility = NOTHING
    hold: bool = False
    hold_timeout: float | None = None
    failure_grace: float = policy.FAILURE_GRACE
    restarts: Restarts = LOCAL_RESTARTS
    checkpoints: str | None = None
    live: bool = False
    notes: tuple[str, ...] = ()


def check(options: Options) -> Manifest | None:
    """Read the manifest, or look whether the script is there. Raises `UsageError`; makes nothing."""
    check_probes(options.probes)
    if options.manifest is not None:
        try:
            job = manifest.read(documents.load(options.manifest))
            check_probes(job.probes)
        except UsageError as error:
            message = f"{options.manifest}: {error}"
            raise UsageError(message) from error
        return job
    check_script(options)
    return None


def check_script(options: Options) -> None:
    """Look whether there is something to run. Raises `UsageError`."""
    name = options.command[0]
    if options.module:
        top = name.partition(".")[0]
        if PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
            message = f"there is no module {top!r} to run"
            raise UsageError(message)
    elif not Path(name).exists():
        message = f"there is no script {name}"
        raise UsageError(message)


def check_probes(wanted: Mapping[str, Any]) -> None:
    """Look whether the agent will know the probes and their parameters. Raises `UsageError`."""
    if complaints := settings.read(json.dumps(wanted)).complaints:
        raise UsageError(complaints[0].removeprefix(f"{wire.ENV_PROBES}: "))


def of_script(options: Options, *, interactive: bool) -> Plan:
    """Plan the run of a script."""
    mode = options.mode or rules.default_mode(interactive=interactive)
    return Plan(
        title=shlex.join(("-m", *options.command) if options.module else options.command),
        groups=tuple(groups.of_script(options, free_port())),
        ranks=options.nproc * options.nnodes,
        rules=rules.of_mode(mode, options.hold_timeout, restarts=bool(options.max_restarts)),
        restarts=bounded(LOCAL_RESTARTS, options),
        checkpoints=str(options.checkpoints) if options.checkpoints else None,
        probes=options.probes,
        containment=options.containment or "strict",
        reproducibility=options.reproducibility,
        failure_grace=grace(options, None),
        live=sys.stderr.isatty(),
    )


def of_manifest(options: Options, job: Manifest, report: Path, scratch: Path, *, interactive: bool) -> Plan:
    """Plan the run of a manifest: its volumes are made here. Raises `UsageError`."""
    procs = local_gpus() if job.procs == "auto" else job.procs
    mappings = [
        volumes.paths(job.mounts, volumes.place(job, report, scratch / f"pod-{node}"))
        for node in range(job.nodes)
    ]
    if options.mode:
        chosen = rules.of_mode(options.mode, options.hold_timeout, restarts=bool(options.max_restarts))
    else:
        chosen = rules.of_manifest(job.rules, options.hold_timeout, interactive=interactive)
    return Plan(
        title=f"TrainingJob {job.name}: {shlex.join(job.command)}",
        groups=tuple(groups.of_manifest(job, procs, free_port(), mappings)),
        ranks=job.nodes * procs,
        rules=chosen,
        restarts=bounded(job.restarts, options),
        checkpoints=str(options.checkpoints) if options.checkpoints else None,
        probes={**job.probes, **options.probes},
        containment=options.containment or job.containment,
        reproducibility=options.reproducibility.over(job.reproducibility),
        failure_grace=grace(options, job.failure_grace),
        hold=job.hold,
        hold_timeout=None if interactive else options.hold_timeout or rules.HOLD_TIMEOUT,
        live=True,
        notes=(*job.ignored, *volumes.said(job.mounts, job, mappings[0])),
    )


def variables(plan: Plan, directory: Path) -> dict[str, str]:
    """Return what the ranks' environment has beside this process' own."""
    injected = find_spec("stepwarden.inject")
    folder = str(Path(injected.origin).parent) if injected and injected.origin else ""
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    return {
        "PYTHONPATH": path,
        wire.ENV_DIRECTORY: str(directory),
        wire.ENV_POLICY: policy.to_json(plan.rules),
        wire.ENV_PROBES: json.dumps(plan.probes),
        wire.ENV_CONTAINMENT: plan.containment,
        wire.ENV_RANKS: str(plan.ranks),
        wire.ENV_GRACE: str(plan.failure_grace),
        wire.ENV_SAVE_FILE: str(directory / "save"),
        **({wire.ENV_CHECKPOINTS: plan.checkpoints} if plan.checkpoints else {}),
        **reproducing(plan.reproducibility),
    }


def bounded(bounds: Restarts, options: Options) -> Restarts:
    """Return what bounds the restarts: as the person says, else the manifest."""
    return bounds if options.max_restarts is None else replace(bounds, most=options.max_restarts)


def grace(options: Options, asked: float | None) -> float:
    """Return how long ranks have to end once one failed: as the person says, else the manifest."""
    given = asked if options.failure_grace is None else options.failure_grace
    return policy.FAILURE_GRACE if given is None else given


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def local_gpus() -> int:
    """Return the number of GPUs, one where there is none: the ranks that "auto" means."""
    return max(1, len(list(Path("/dev").glob("nvidia[0-9]*"))))
