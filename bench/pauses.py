"""
Silence about ranks: healthy runs with jitter, pauses on one rank alone, slow first steps and compilation.

    python bench pauses [--runs N] [--first SEED]

Each is `stepwarden run` of bench/pausing.py with 2 ranks, every fourth with 4. Exit code 1: something above
info was said of one, or one did not end as it should.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from stepwarden.report.records import read_findings
from stepwarden.wire import Finding

SCRIPT = Path(__file__).with_name("pausing.py")
RUNS = 30
PATIENCE = 900.0  # seconds that a run may take


def run(seed: int) -> tuple[int, list[Finding]]:
    """Do one run; return its exit code, and what was said above info."""
    ranks = "2" if seed % 4 else "4"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "stepwarden.cli", "run", "--nproc", ranks, "--report", "report", "--",
             str(SCRIPT), str(seed)],
            cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, timeout=PATIENCE,
            capture_output=True, text=True,
        )  # fmt: skip
        path = Path(folder, "report", "findings.jsonl")
        found = read_findings(path) if path.exists() else []
    course = next((line for line in done.stdout.splitlines() if line.startswith("{")), done.stderr[-500:])
    print(f"   {course}", flush=True)
    return done.returncode, [each for each in found if each.severity != "info"]


def main(options: Sequence[str] | None = None) -> int:
    """Do all runs, and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(options)
    bad = 0
    for seed in range(given.first, given.first + given.runs):
        began = time.monotonic()
        code, found = run(seed)
        bad += bool(code or found)
        what = "; ".join(f"{each.kind} at step {each.step}: {each.message}" for each in found) or "silent"
        print(f"run {seed}: exit code {code}, {time.monotonic() - began:.0f} s, {what}", flush=True)
    print(f"{given.runs - bad} of {given.runs} runs were silent", flush=True)
    return int(bool(bad))
