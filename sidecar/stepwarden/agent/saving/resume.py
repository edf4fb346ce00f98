"""
Tells the program, before its first line, which checkpoint to go on from.

The newest one that is whole and finite, in STEPWARDEN_RESUME_FROM; empty where there is none. A pod
looks once, in a process of its own: the first rank asks, the others wait for its answer.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stepwarden.agent.say import say
from stepwarden.wire import ENV_CHECKPOINTS, ENV_DIRECTORY, ENV_POLICY, ENV_RANK, ENV_RESUME

WATCHED = (ENV_DIRECTORY, ENV_POLICY, ENV_RANK, "RANK", "LOCAL_RANK")  # what makes a process a watched rank
ELASTIC = "TORCHELASTIC_RESTART_COUNT"  # torchrun may start the ranks of a pod again by itself


def start() -> None:
    """Set the variable, unless it is set: a child process of a rank has it already."""
    directory = os.environ.get(ENV_CHECKPOINTS)
    if not directory or ENV_RESUME in os.environ:
        return
    os.environ[ENV_RESUME] = ""
    try:
        os.environ[ENV_RESUME] = agreed(directory, os.environ)
    except (OSError, ValueError) as error:
        say(f"can't look for a checkpoint in {directory}, none is named: {error}")


def agreed(directory: str, variables: Mapping[str, str]) -> str:
    """Return the pod's one answer. Raises `OSError` and `ValueError`."""
    if not (shared := variables.get(ENV_DIRECTORY)):
        return look(directory, variables)
    digest = hashlib.sha256(directory.encode()).hexdigest()[:12]
    path = Path(shared) / f"resume-{digest}-{variables.get(ELASTIC, '0')}"
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # one that ends in its middle lets the next one look
        file.seek(0)
        if known := file.read():
            return str(json.loads(known))
        found = look(directory, variables)
        file.write(json.dumps(found))
        file.flush()
        return found


def look(directory: str, variables: Mapping[str, str]) -> str:
    """Read the checkpoints, newest first, and say what is passed over. Raises `OSError`, `ValueError`."""
    command = [sys.executable, "-m", "stepwarden.checkpoint", directory]
    env = {name: value for name, value in variables.items() if name not in WATCHED}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode != 0:
        message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(message)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        if found["word"] == "good":
            say(f"goes on from {found['path']}: {found['reason']}")
            return str(found["path"])
        say(f"passes over {found['path']}, which is {found['word']}: {found['reason']}")
    say(f"no checkpoint to go on from in {directory}")
    return ""


def forget(shared: Path) -> None:
    """Let the next run of ranks on this machine look again."""
    for path in shared.glob("resume-*"):
        path.unlink(missing_ok=True)
