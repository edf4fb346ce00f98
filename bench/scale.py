"""
One operator, 1,000 TrainingJobs, a real API server: how fast, how large, how idle.

The API server is the tests' own (etcd, API server, controller-manager; no node, so no pod runs).
Three figures: TrainingJobs a second from the first creation to the last written status; the
operator's memory; its processor time while all 1,000 jobs are held. For the last, their pods are
said to run, and one server plays the hub of all of them. They are made suspended, so that the
first figure is of the operator and not of the Job controller's pods.

    python bench scale [--jobs 1000] [--idle 60]
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from api import Api

from stepwarden import wire

ROOT = Path(__file__).parent.parent
HARNESS = ROOT / "tests" / "cluster" / "harness"
STATE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepwarden" / "bench"
JOBS = "/apis/stepwarden.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 300.0  # seconds
SETTLE = 90.0  # seconds: the Job controller writes 1,000 statuses at 20 a second
PAGE = os.sysconf("SC_PAGE_SIZE")
HELD = wire.JobReport(
    version="1",
    ranks=(wire.RankReport(rank=0, pod=0, state="held", step=5, time=0.0),),
    orders=wire.Orders(hold_at=5),
)


def say(line: str) -> None:
    """Show progress, on stderr."""
    sys.stderr.write(f"{line}\n")


@contextmanager
def api_server() -> Any:
    """Run an API server; gives its kubeconfig."""
    tool = [sys.executable, str(HARNESS), "--dir", str(STATE)]
    up = subprocess.run([*tool, "up", "--api-only"], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own
    try:
        yield Path(up.stdout.strip())
    finally:
        subprocess.run([*tool, "down"], check=True)  # noqa: S603 - our own


@contextmanager
def operator(kubeconfig: Path) -> Any:
    """Run the operator on this machine; gives its process id."""
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "STEPWARDEN_IMAGE": "none", "STEPWARDEN_KEY": "bench"}
    with tempfile.TemporaryFile() as log:
        argv = [sys.executable, "-m", "stepwarden_operator"]
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log)  # noqa: S603 - our own
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


@asynccontextmanager
async def hub() -> AsyncIterator[None]:
    """Play the hub of every job: its one rank is held, and nothing changes."""

    async def job(request: web.Request) -> web.Response:
        if request.query.get("version") == HELD.version:
            await asyncio.sleep(float(request.query.get("wait", 0)))
        return web.Response(text=wire.to_line(HELD), content_type="application/json")

    app = web.Application()
    app.add_routes([web.get("/v1/job", job), web.put("/v1/instruction", job)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", wire.DEFAULT_PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


def manifest(number: int) -> dict[str, Any]:
    """Put one TrainingJob."""
    trainer = {"name": "trainer", "image": "none", "command": ["torchrun", "train.py"]}
    return {
        "apiVersion": "stepwarden.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"bench-{number}"},
        "spec": {"hold": True, "suspend": True, "template": {"spec": {"containers": [trainer]}}},
    }


def running(now: str) -> Mapping[str, Any]:
    """Put the status of a pod that runs, at the address where the hub is played."""
    return {
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": now,
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")],
        }
    }


async def until(api: Api, what: str, count: int, holds: Any, path: str = JOBS) -> float:
    """Wait until that many objects are as they should be; return the time."""
    end = time.monotonic() + PATIENCE
    while True:
        seen = time.monotonic()
        found = sum(map(holds, await api.items(path)))
        if found >= count:
            return seen
        if seen > end:
            message = f"{found} of {count} {what} after {PATIENCE:.0f} s"
            raise RuntimeError(message)
        await asyncio.sleep(0.25)


def memory(pid: int, field: str) -> float:
    """Read a process's memory in MB: VmRSS now, VmHWM at its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu(pid: int) -> float:
    """Read the processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(kubeconfig: Path, count: int, idle: float) -> None:
    """Measure, and print the figures."""
    async with Api(kubeconfig) as api, hub():
        with operator(kubeconfig) as pid:
            await api.call("POST", JOBS, manifest(count))
            await until(api, "have a status", 1, lambda job: "phase" in job.get("status", {}))
            began = time.monotonic()
            await api.all([("POST", JOBS, manifest(number)) for number in range(count)])
            created = time.monotonic() - began
            done = await until(api, "have a status", count + 1, lambda job: "phase" in job.get("status", {}))
            print(f"TrainingJobs: {count}, created in {created:.1f} s")
            print(f"to a written status: {done - began:.1f} s, {count / (done - began):.0f} a second")
            say("starting their pods, and saying that they run")
            start = {"spec": {"suspend": False}}
            await api.all([("PATCH", f"{JOBS}/bench-{number}", start) for number in range(count)])
            await until(api, "have a pod", count, lambda pod: "metadata" in pod, PODS)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            pods = [pod["metadata"]["name"] for pod in await api.items(PODS)]
            await api.all([("PATCH", f"{PODS}/{name}/status", running(now)) for name in pods])
            await until(api, "are held", count, lambda job: job.get("status", {}).get("phase") == "Held")
            say(f"all held; idle for {idle:.0f} s")
            await asyncio.sleep(SETTLE)
            before, began = cpu(pid), time.monotonic()
            await asyncio.sleep(idle)
            used = (cpu(pid) - before) / (time.monotonic() - began)
            print(f"memory: {memory(pid, 'VmRSS'):.0f} MB, {memory(pid, 'VmHWM'):.0f} MB at its peak")
            print(f"processor while {count} jobs are held: {used:.2%} of one core")


def install(kubeconfig: Path) -> None:
    """Tell the API server what a TrainingJob is."""
    crd = str(ROOT / "charts" / "stepwarden" / "crds" / "trainingjobs.yaml")
    tool = [sys.executable, str(HARNESS), "which", "kubectl"]
    kubectl = subprocess.run(tool, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()  # noqa: S603 - our own
    for command in (["apply"], ["wait", "--for=condition=Established"]):
        argv = [kubectl, "--kubeconfig", str(kubeconfig), *command, "-f", crd]
        subprocess.run(argv, check=True, stdout=sys.stderr)  # noqa: S603 - kubectl


def main(argv: list[str]) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser("bench scale", description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds (default: %(default)s)")
    options = parser.parse_args(argv)
    with api_server() as kubeconfig:
        install(kubeconfig)
        asyncio.run(measure(kubeconfig, options.jobs, options.idle))
