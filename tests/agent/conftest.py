"""The other side of the wire, and processes under the real torchrun."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stepwarden import policy, wire

HERE = Path(__file__).parent
INJECT = HERE.parent.parent / "sidecar" / "stepwarden" / "inject"
PATIENCE = 120.0


class Sidecar:
    """A socket that keeps what agents say."""

    def __init__(self, folder):
        self.folder = folder
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / wire.SIDECAR_SOCKET))
        self.socket.settimeout(0.1)
        self.heard = []
        self.changed = threading.Condition()
        self.open = True
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while self.open:
            try:
                message = wire.from_line(self.socket.recv(wire.MAX_DATAGRAM))
            except TimeoutError:
                continue
            with self.changed:
                self.heard.append(message)
                self.changed.notify_all()

    def close(self):
        if self.open:
            self.open = False
            self.thread.join()
            self.socket.close()
            (self.folder / wire.SIDECAR_SOCKET).unlink()

    def order(self, **orders):
        line = wire.to_line(wire.Orders(**orders)).encode()
        for name in self.folder.glob("rank-*.sock"):
            self.socket.sendto(line, str(name))

    def wait(self, condition):
        """Wait until a condition on what was heard is true, and return it."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), PATIENCE), self.heard[-20:]
            return condition(self)

    def of(self, cls):
        return [message for message in list(self.heard) if isinstance(message, cls)]

    def held(self, step):
        """Return the ranks that have said that they hold at a step."""
        return {
            said.rank: said for said in self.of(wire.RankState) if (said.state, said.step) == ("held", step)
        }

    def findings(self, kind, step):
        """Return the findings of a kind and step, by rank."""
        return {said.rank: said for said in self.of(wire.Finding) if (said.kind, said.step) == (kind, step)}


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
