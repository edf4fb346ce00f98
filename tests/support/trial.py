"""
Runs of one script: plainly, and watched by `stepwarden run`.

A plain run is a fork of a process that has torch imported already, which saves most of its time. Where the
two runs differ, the script is run plainly once more as its user would.
"""

import json
import multiprocessing
import os
import re
import runpy
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from casebook import Case
from verdict import difference

NUMBER = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)"
LOSS = re.compile(rf"(?:rank (\d+) )?(?:[a-z-]+ (?:\d+ )?){{0,4}}?step (\d+) loss ({NUMBER})")
PATIENCE = 240.0  # seconds for one run
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Run:
    """How a run went: its exit code, and by rank the losses that were printed."""

    code: int
    losses: dict[str, list[str]]
    errors: str


def heard(code: int, folder: Path) -> Run:
    """Read what a run has printed. Losses are taken by rank, as lines of two ranks may be mixed."""
    losses: dict[str, list[str]] = {}
    for rank, step, loss in LOSS.findall((folder / "out").read_text(errors="replace")):
        losses.setdefault(rank or "-", []).append(f"step {step} loss {loss}")
    return Run(code, losses, (folder / "err").read_text(errors="replace")[-2000:])


def become(script: str, folder: str, variables: dict[str, str]) -> None:
    """Be a plain run of a script: this is called in a process of its own."""
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder, name), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), descriptor)
    os.chdir(folder)
    os.environ.update(variables)
    sys.argv = [script]
    sys.stdout.reconfigure(line_buffering=True)
    runpy.run_path(script, run_name="__main__")


def prepare() -> ForkServerContext:
    """Start the process that plain runs are forks of: with one thread, as torch decides when imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        forkserver.ensure_running()
    return context


def plainly(context: ForkServerContext, case: Case, folder: Path) -> Run:
    """Run a case plainly; as under torchrun, the first rank that fails ends the others, and the code is 1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"WORLD_SIZE": str(case.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = []
    for rank in map(str, range(case.ranks)):
        own = {} if case.ranks == 1 else {**world, "RANK": rank, "LOCAL_RANK": rank}
        ranks.append(
            context.Process(target=become, args=(str(case.file), str(folder), {**ONE_THREAD, **own}))
        )
        ranks[-1].start()
    until = time.monotonic() + PATIENCE
    while any(rank.is_alive() for rank in ranks) and time.monotonic() < until:
        connection.wait([rank.sentinel for rank in ranks if rank.is_alive()], timeout=1)
        if any(rank.exitcode for rank in ranks):
            break
    for rank in ranks:
        rank.kill()
        rank.join()
    failed = [rank.exitcode for rank in ranks if rank.exitcode]
    code = 0 if not failed else failed[0] if case.ranks == 1 else 1
    return heard(code, folder)


def started(command: list[str], folder: Path) -> Run:
    """Run a command to its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPWARDEN_")}
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=PATIENCE,
            check=False,
        )
    return heard(done.returncode, folder)


def as_its_user_would(case: Case, folder: Path) -> Run:
    """Run a case plainly, with an interpreter of its own."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.ranks}"]
    return started([sys.executable, *(torchrun if case.ranks > 1 else ()), str(case.file)], folder)


def watched(case: Case, folder: Path) -> tuple[Run, list[dict[str, object]]]:
    """Run a case under the command line; return how it went and its findings."""
    report = folder / "report"
    options = ["--nproc", str(case.ranks), "--on-anomaly", "observe", "--report", str(report), *case.options]
    run = started([sys.executable, "-m", "stepwarden.cli", "run", *options, "--", str(case.file)], folder)
    findings = report / "findings.jsonl"
    text = findings.read_text(encoding="utf-8") if findings.exists() else ""
    return run, [json.loads(line) for line in text.splitlines()]


def disturbed(plain: Run, run: Run) -> str:
    """Say what watching has changed; nothing where nothing was."""
    if plain.code != run.code:
        return f"exit code {run.code}, plainly {plain.code}: {run.errors}"
    for rank in sorted({*plain.losses, *run.losses}):
        mine, theirs = plain.losses.get(rank, []), run.losses.get(rank, [])
        if found := difference(mine, theirs, died=plain.code != 0):
            return f"rank {rank}: {found}"
    return ""
