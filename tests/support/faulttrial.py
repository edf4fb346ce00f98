"""Tries one fault with `stepwarden run`, and takes down what is seen and when."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TRAINER = Path(__file__).parents[1] / "faults" / "trainer.py"
START = 120.0  # seconds until the fault has begun: two cores import torch in all ranks
ENOUGH = 60.0  # seconds from the fault until it is given up
GRACE = 2.0  # the default of --failure-grace
TOLD = re.compile(r"stepwarden: rank (\d+): (?:a rank|rank \d+) (?:failed|hangs)\b")


@dataclass(kw_only=True)
class Outcome:
    """What was seen. Times are in seconds since the fault began, None where it never came."""

    kind: str | None = None
    rank: int | None = None
    message: str = ""
    found: float | None = None  # the finding, in the terminal
    told: dict[int, float] = field(default_factory=dict)  # by rank: that another rank failed, in its log
    ended: float | None = None  # the last process of a rank is gone
    code: int | None = None
    lines: list[str] = field(default_factory=list)


class Trial:
    """One run."""

    def __init__(self, fault, *, ranks, rank, step, within=(), temporary=None):  # noqa: PLR0913 - all named
        """Begin; `within` is a command that runs the command which follows it, `temporary` its folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="fault-"))
        self.fault, self.ranks, self.rank, self.began = fault, ranks, rank, self.folder / "began"
        self.lines: list[tuple[float, str]] = []
        given = {
            "FAULT": fault.name,
            "FAULT_RANK": str(rank),
            "FAULT_STEP": str(step),
            "FAULT_BEGAN": str(self.began),
            "STEPS": str(fault.steps),
            "OMP_NUM_THREADS": "1",
            **({"TMPDIR": str(temporary)} if temporary else {}),
        }
        command = ["run", "--nproc", ranks, "--on-anomaly", "observe", "--report", self.folder / "report"]
        self.process = subprocess.Popen(
            [*within, sys.executable, "-m", "stepwarden.cli", *map(str, (*command, "--", TRAINER))],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("STEPWARDEN_")}
            | given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append((time.time(), line.rstrip()))

    def until(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not (found := condition()) and time.monotonic() < deadline and self.alive():
            time.sleep(0.02)
        return found or condition()

    def alive(self):
        return self.process.poll() is None

    def ranks_left(self):
        """Return the processes that run the trainer."""
        found = set()
        for path in Path("/proc").iterdir():
            if path.name.isdecimal():
                with suppress(OSError):
                    variables = (path / "environ").read_bytes()
                    state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                    if str(self.began).encode() in variables and b"\0RANK=" in variables and state != "Z":
                        found.add(int(path.name))
        return found

    def sidecar(self):
        """Return the process id of the sidecar, a child of the command."""
        [children] = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        for pid in children.read_text().split():
            if "stepwarden_sidecar" in Path(f"/proc/{pid}/cmdline").read_text():
                return int(pid)
        raise AssertionError("no sidecar\n" + self.text())

    def findings(self):
        """Return the findings of the fault's kind that name one rank, and all that pause or warn."""
        text = ""
        with suppress(OSError):
            text = (self.folder / "report" / "findings.jsonl").read_text()
        found = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return [finding for finding in found if finding["severity"] != "info"]

    def play(self):
        """See it through, and return what was seen."""
        try:
            if not self.until(self.began.exists, START):
                raise AssertionError(f"{self.fault.name} has not begun\n" + self.text())
            self.until(self.seen, ENOUGH)
            if self.fault.lives:
                self.stop()
            gone = self.until_gone()
            self.process.wait(ENOUGH)
            self.reader.join(ENOUGH)
            return self.outcome(gone)
        finally:
            self.stop()
            self.reader.join(ENOUGH)
            self.process.stderr.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def seen(self):
        slow = self.fault.kind == "RankStraggling"  # that is not told to other ranks
        told = slow or len(self.told()) >= self.ranks - 1
        return told and bool(self.findings())

    def told(self):
        return {int(m[1]): when for when, line in list(self.lines) if (m := TOLD.search(line))}

    def until_gone(self):
        deadline = time.monotonic() + ENOUGH
        while self.ranks_left() and time.monotonic() < deadline:
            time.sleep(0.02)
        return time.time()

    def stop(self):
        for pid in self.ranks_left():
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        with suppress(OSError):
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def outcome(self, gone):
        began = float(self.began.read_text())
        found = self.findings()
        first = found[0] if found else {}
        kind = first.get("kind")
        shown = [when for when, line in self.lines if kind and f"{kind} " in line]
        return Outcome(
            kind=kind,
            rank=first.get("rank"),
            message=first.get("message", ""),
            found=shown[0] - began if shown else None,
            told={rank: when - began for rank, when in self.told().items()},
            ended=gone - began,
            code=self.process.returncode,
            lines=[line for _, line in self.lines],
        )
