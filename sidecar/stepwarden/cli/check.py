"""`stepwarden check`: runs a script for some steps, prints its layers and their gradients, and gradchecks."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tabulate import tabulate

from stepwarden import wire
from stepwarden.cli.arguments import Options, count
from stepwarden.cli.check_arguments import FOLDER, LONGEST
from stepwarden.cli.failure import UsageError
from stepwarden.cli.run import run
from stepwarden.report import layers
from stepwarden.report.layers import Layer
from stepwarden.report.records import lines, read_findings

FAILED, UNTRIED = 1, 2
VERDICTS: Mapping[object, str] = {True: "ok", False: "FAILED"}


def act(parsed: argparse.Namespace) -> int:
    """Check, and return the exit code. Raises `UsageError` where nothing was started."""
    command = tuple(parsed.command)
    command = command[1:] if command[:1] == ("--",) else command
    if not command:
        message = "give a script, as in `stepwarden check -- train.py`"
        raise UsageError(message)
    steps = LONGEST if parsed.steps is None else count(parsed.steps, "--steps")
    folder = Path(parsed.report or FOLDER)
    options = Options(
        command=command,
        module=parsed.module,
        nproc=count(parsed.nproc, "--nproc"),
        mode="observe",
        report=folder,
    )
    os.environ[wire.ENV_CHECK] = json.dumps({"steps": steps, "gradcheck": parsed.gradcheck})
    code = run(options)
    return code or concluded(folder, parsed.gradcheck)


def concluded(folder: Path, wanted: list[str]) -> int:
    """Print what was seen, and return the exit code."""
    table = layers.read(folder / "layers.jsonl")
    checks = {note.body.get("name"): note.body for note in lines(folder / "gradcheck.jsonl", wire.Note)}
    if not table and not checks:
        sys.stderr.write("stepwarden: nothing was checked: the script made no two steps of an optimizer\n")
        return UNTRIED
    sys.stdout.write(f"{rendered(table)}\n")
    for name in wanted:
        body = checks.get(name, {"ok": None, "message": "the script ended before its first step"})
        verdict = VERDICTS.get(body.get("ok"), "not checked")
        sys.stdout.write(f"gradcheck {name}: {verdict}: {body.get('message')}\n")
    checked = [checks.get(name, {}).get("ok") for name in wanted]
    alarms = [finding for finding in read_findings(folder / "findings.jsonl") if finding.severity != "info"]
    if alarms or False in checked or any(layer.health in {"no gradient", "zero gradient"} for layer in table):
        return FAILED
    return UNTRIED if None in checked else 0


def rendered(table: list[Layer]) -> str:
    """Return the layers as text."""
    rows = [
        (
            layer.name,
            f"{layer.parameters:,}",
            layer.frozen,
            norm(layer.early),
            norm(layer.late),
            layer.health,
        )
        for layer in table
    ]
    head = ("layer", "parameters", "frozen", "grad norm at step 1", "at step 10", "")
    return tabulate(rows, headers=head, disable_numparse=True, colalign=("left", "right", *("left",) * 4))


def norm(value: float | None) -> str:
    """Return a gradient norm as text."""
    return "-" if value is None else f"{value:.3g}"
