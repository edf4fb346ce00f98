import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def ready_for_ctrl_c():
    """A runner that was started in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment(**more):
    mine = {"STEPWARDEN_", "PET_", "MASTER_", "TORCHELASTIC_"}
    return {name: value for name, value in os.environ.items() if not name.startswith(tuple(mine))} | more


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"not so after {seconds} s")


def alive(marker):
    """Processes of this machine whose environment has the marker."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and marker.encode() in (path / "environ").read_bytes():
                    found.add(int(path.name))
            except OSError:
                continue
    return found


class Stepwarden:
    """Starts `stepwarden` in a folder, as a person would, and knows what it leaves behind."""

    def __init__(self, folder):
        self.folder = folder
        self.marker = f"STEPWARDEN_TEST={folder}"

    def start(self, *arguments, stdin=subprocess.DEVNULL, **more):
        return subprocess.Popen(
            [sys.executable, "-m", "stepwarden.cli", *map(str, arguments)],
            cwd=self.folder,
            env=environment(MARK=self.marker, **more),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=ready_for_ctrl_c,  # noqa: PLW1509 - the tests have one thread
        )

    def __call__(self, *arguments, **more):
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def script(self, text, name="train.py"):
        path = self.folder / name
        path.write_text(text)
        return path

    def until_exists(self, name):
        until((self.folder / name).exists)

    def until_gone(self):
        until(lambda: not self.left())

    def left(self):
        return alive(self.marker)


@pytest.fixture
def nan():
    return Path(__file__).parents[2] / "examples" / "nan"


@pytest.fixture
def stepwarden(tmp_path):
    made = Stepwarden(tmp_path)
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)
