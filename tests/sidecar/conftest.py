import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from stepwarden.wire import (
    SIDECAR_SOCKET,
    Finding,
    JobReport,
    RankState,
    StepTaken,
    from_line,
    rank_socket,
    to_line,
)

DEADLINE = 60.0
TOKEN = "a-token"  # noqa: S105 - a test's


async def eventually(condition, *arguments):
    """Poll until a condition holds, and return what it gave; async ones are awaited."""
    end = time.monotonic() + DEADLINE
    while True:
        found = condition(*arguments)
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


class Agent:
    """A rank's side of the sockets, and of nothing else."""

    def __init__(self, directory, rank, pid=100):
        self.directory, self.rank, self.pid = directory, rank, pid
        self.inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.inbox.bind(str(directory / rank_socket(rank)))
        self.inbox.settimeout(0)
        self.outbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard = []

    def send(self, message):
        raw = message if isinstance(message, bytes) else to_line(message).encode()
        self.outbox.sendto(raw, str(self.directory / SIDECAR_SOCKET))

    def is_(self, state, step, reason=""):
        now = time.time()
        self.send(RankState(rank=self.rank, state=state, step=step, time=now, pid=self.pid, reason=reason))

    def takes(self, step, **more):
        fields = {"seconds": 0.1, "loss": 2.5, "gradient_norm": 1.5}
        self.send(StepTaken(rank=self.rank, step=step, time=time.time(), **fields | more))

    def finds(self, step, kind="NonFiniteGradient", **evidence):
        message = f"gradient of rank {self.rank} is NaN"
        own = {"rank": self.rank, "ranks": (self.rank,), "parameter": f"p{self.rank}"}
        self.send(
            Finding(kind=kind, severity="critical", step=step, message=message, evidence=evidence, **own)
        )

    def orders(self):
        """The last orders that it was told, or None."""
        with suppress(BlockingIOError):
            while True:
                self.heard.append(from_line(self.inbox.recv(1 << 18)))
        return self.heard[-1] if self.heard else None

    def close(self):
        self.inbox.close()
        self.outbox.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Running:
    """A sidecar's process, and how it is asked."""

    def __init__(self, directory, settings, session):
        self.directory, self.session = directory, session
        self.environment = {"STEPWARDEN_DIR": str(directory), "STEPWARDEN_TOKEN": TOKEN, **settings}
        self.port, self.process = None, None

    async def start(self):
        (self.directory / "port").unlink(missing_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STEPWARDEN_")}
        fixed = {"STEPWARDEN_PORT": "0", "STEPWARDEN_BIND": "127.0.0.1"}
        self.log = (self.directory / "log").open("ab")
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stepwarden_sidecar"),
            env=inherited | fixed | self.environment,
            stderr=self.log,
        )
        self.log.close()
        await eventually(self.is_up)
        self.port = int((self.directory / "port").read_text()) if self.asked_port == "0" else self.asked_port

    @property
    def asked_port(self):
        return self.environment.get("STEPWARDEN_PORT", "0")

    def is_up(self):
        """Whether it listens: its log says so."""
        assert self.process.returncode is None, self.logged()
        return self.logged().count("listening at") > self.logged().count("(test: killed)")

    def logged(self):
        return (self.directory / "log").read_text()

    async def kill(self):
        self.process.kill()
        await self.process.wait()
        with (self.directory / "log").open("a") as log:
            log.write("(test: killed)\n")

    async def end(self):
        """Send SIGTERM; return the exit code and how long it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), DEADLINE)
        return code, time.monotonic() - began

    @property
    def url(self):
        return f"http://{self.environment.get('STEPWARDEN_BIND', '127.0.0.1')}:{self.port}"

    async def ask(self, method, path, *, token=TOKEN, **more):
        """Ask over HTTP; return the status and the text."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.request(method, self.url + path, headers=headers, **more) as answer:
            return answer.status, await answer.text()

    async def job(self, version=None, wait=0.0):
        query = {} if version is None else {"version": version, "wait": str(wait)}
        status, text = await self.ask("GET", "/v1/job", params=query)
        assert status == 200, text
        report = from_line(text)
        assert isinstance(report, JobReport)
        return report

    async def instruct(self, **fields):
        status, text = await self.ask("PUT", "/v1/instruction", data=json.dumps(fields))
        assert status == 200, text
        return from_line(text)

    async def found(self, count=1):
        """The job's findings, once there are so many."""
        report = await self.job()
        return report.findings if len(report.findings) >= count else None


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def folder():
    """A folder whose path is short enough for unix sockets."""
    made = Path(tempfile.mkdtemp(prefix="sw-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def sidecar(folder, session):
    """Start sidecars: `await sidecar("name", STEPWARDEN_RANKS="2")`."""
    running = []

    async def start(name="pod0", **settings):
        (folder / name).mkdir()
        made = Running(folder / name, settings, session)
        running.append(made)
        await made.start()
        return made

    yield start
    for each in running:
        if each.process and each.process.returncode is None:
            await each.kill()


@pytest.fixture
def agent():
    """Make fake agents: `agent(sidecar, rank)`."""
    made = []

    def make(sidecar, rank, **more):
        made.append(Agent(sidecar.directory, rank, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
