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

from faultbook import NO_HUB, NO_ROOM
from memory import ENTER, limited

TRAINER = Path(__file__).parents[1] / "faults" / "trainer.py"
START = 120.0  # seconds until the fault has begun: two cores import torch in all ranks
ENOUGH = 60.0  # seconds from the fault until it is given up
MEMORY = 4 << 30  # bytes for all ranks, where one of them takes all it gets
TOLD = re.compile(r"stepwarden: rank (\d+): (?:a rank|rank \d+) (?:failed|hangs)\b")
# Runs what follows, in a temporary folder that is full as soon as a rank's agent is at work.
FULL = """
mount -t tmpfs -o size=512k none "$TMPDIR" || exit 90
"$@" & run=$!
while kill -0 $run && ! ls "$TMPDIR"/stepwarden-*/*/rank-1.sock >/dev/null 2>&1; do sleep 0.1; done
head -c 1M /dev/zero > "$TMPDIR/full" 2>/dev/null
wait $run
"""


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


def environment(fault, rank, step, began):
    """Return the variables by which the trainer knows its fault."""
    return {
        "FAULT": fault.name if fault.way is None else fault.way,
        "FAULT_RANK": str(rank),
        "FAULT_STEP": str(step),
        "FAULT_BEGAN": str(began),
        "STEPS": str(fault.steps),
        "OMP_NUM_THREADS": "1",
    }


def ranks_left(began):
    """Return the processes of this machine that run a trainer which knows this file."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                variables = (path / "environ").read_bytes()
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if str(began).encode() in variables and b"\0RANK=" in variables and state != "Z":
                    found.add(int(path.name))
    return found


def step_of(folder):
    """Return the last step that rank 0 has taken, -1 before the first."""
    with suppress(OSError, ValueError):
        return int((folder / "step-0").read_text())
    return -1


def gone(began):
    """Wait until no rank is left; return that time."""
    deadline = time.monotonic() + ENOUGH
    while ranks_left(began) and time.monotonic() < deadline:
        time.sleep(0.02)
    return time.time()


def tellings(lines):
    """Return when each rank first said that another one is in trouble; `lines` are (when, line)."""
    found = {}
    for when, line in lines:
        if match := TOLD.search(line):
            found.setdefault(int(match[1]), when)
    return found


class Trial:
    """One run."""

    def __init__(self, fault, *, ranks, rank, step):
        """Begin."""
        self.folder = Path(tempfile.mkdtemp(prefix="fault-"))
        self.fault, self.ranks, self.began = fault, ranks, self.folder / "began"
        self.lines: list[tuple[float, str]] = []
        self.cgroup = limited(self.folder.name, MEMORY) if fault.name == "oom" else None
        given, within = environment(fault, rank, step, self.began), []
        if self.cgroup:
            within = [*ENTER, str(self.cgroup)]
        if fault.beside == NO_ROOM:
            (self.folder / "tmp").mkdir()
            given["TMPDIR"] = str(self.folder / "tmp")
            within = ["unshare", "--mount", "bash", "-c", FULL, "full"]
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
            if self.fault.beside == NO_HUB:
                if not self.until(lambda: step_of(self.folder) >= 5, START):
                    raise AssertionError("no fifth step\n" + self.text())
                os.kill(self.sidecar(), signal.SIGKILL)
            if not self.until(self.began.exists, START):
                raise AssertionError(f"{self.fault.name} has not begun\n" + self.text())
            self.until(self.seen, ENOUGH)
            if self.fault.lives:
                self.stop()
            ended = gone(self.began)
            self.process.wait(ENOUGH)
            self.reader.join(ENOUGH)
            return self.outcome(ended)
        finally:
            self.stop()
            self.reader.join(ENOUGH)
            self.process.stderr.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.cgroup:
                self.cgroup.rmdir()

    def seen(self):
        told = not self.fault.told or len(self.told()) >= self.ranks - 1
        return told and bool(self.findings())

    def told(self):
        return tellings(list(self.lines))

    def stop(self):
        for pid in ranks_left(self.began):
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        with suppress(OSError):
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def outcome(self, ended):
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
            ended=ended - began,
            code=self.process.returncode,
            lines=[line for _, line in self.lines],
        )
