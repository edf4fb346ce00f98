"""A sidecar to be heard by, and processes under the real torchrun."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hearing import PATIENCE, Sidecar

from stepwarden import policy, wire

OBSERVE = (policy.Rule(severity="info"),)
HERE = Path(__file__).parent
INJECT = HERE.parent.parent / "sidecar" / "stepwarden" / "inject"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Make short folders: the path of a unix socket is short."""
    return lambda: tmp_path_factory.mktemp("s", numbered=True)


@pytest.fixture(scope="module")
def sidecars(folders):
    made = []

    def make():
        made.append(Sidecar(folders()))
        return made[-1]

    yield make
    for sidecar in made:
        sidecar.close()


@pytest.fixture
def sidecar(sidecars):
    return sidecars()


def environment(directory=None, rules=None, second_path="", **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPWARDEN_")}
    own = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **more}
    if directory is not None:
        own |= {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(INJECT), second_path))),
            wire.ENV_DIRECTORY: str(directory),
        }
        own[wire.ENV_POLICY] = policy.to_json(rules or policy.DEFAULT_RULES)
    return kept | own


def start(script, *arguments, ranks=2, **more):
    """Start a script of this folder under torchrun, or alone."""
    command = [sys.executable, "-u"]
    if ranks > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    else:
        more = {wire.ENV_RANK: "0", **more}
    return subprocess.Popen(
        [*command, str(HERE / "scripts" / script), *map(str, arguments)],
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="session")
def torchrun():
    return start


def there(condition):
    """Wait until something is there, and return it."""
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


@pytest.fixture(scope="session")
def poll():
    return there


@pytest.fixture
def attach(sidecar):
    """Attach an agent to this process, whose findings go to the socket; by default they are only observed."""
    from stepwarden.agent.attach import Attached  # noqa: PLC0415 - imports torch
    from stepwarden.agent.environment import Environment  # noqa: PLC0415 - as above
    from stepwarden.agent.trace import standing  # noqa: PLC0415 - as above

    made = []

    def make(rules=OBSERVE, **more):
        made.append(Attached(Environment(rank=0, directory=str(sidecar.folder), rules=rules, **more)))
        return made[-1]

    yield make
    for attached in made:
        attached.detach()
    assert standing.modes() == []  # no recording outlives its agent
