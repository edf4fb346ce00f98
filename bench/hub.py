"""
One hub and many pods: a real sidecar process as the hub, and pods that speak to it by the sidecar's own code.

    python bench hub [--pods 1000] [--seconds 20]

Each pod has a rank that takes a step, says its state and its pulse every second. Prints the hub's share of a
core, its processor time for one report (which other processes hardly change) and its memory, and how long a
finding of one rank, and the operator's wish to hold, take to all pods. Pods and hub share this machine's
cores: the pods are one process, which is as busy as the hub.
"""

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from stepwarden.pulse import Pulse
from stepwarden.wire import Finding, RankState, StepTaken
from stepwarden_sidecar.link import Link
from stepwarden_sidecar.settings import Settings
from stepwarden_sidecar.sidecar import Sidecar

TOKEN = "bench"  # noqa: S105 - of this benchmark's own hub
TICKS = os.sysconf("SC_CLK_TCK")
MEMORY = "/dev/shm"  # noqa: S108 - the pods of a cluster share no disk
WARM = 5.0  # seconds until all pods have connected
PATIENCE = 60.0
REPORTS = [0]  # that the hub has answered


def main(options: Sequence[str]) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser("bench hub", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args(options)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(measure(asked.pods, asked.seconds, asked.times))


async def measure(count: int, seconds: float, times: int) -> None:
    """Start the hub and the pods, and take the figures."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sw-", dir=MEMORY)))
        hub, url = await start(folder, count, stack)
        pods = [await pod(folder, number, count, url, stack) for number in range(1, count)]
        session = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
        )
        await asyncio.sleep(WARM)
        used, began, reports = busy(hub), time.monotonic(), REPORTS[0]
        mine = time.process_time()
        await asyncio.sleep(seconds)
        took, reports = time.monotonic() - began, REPORTS[0] - reports
        spent, ours = busy(hub) - used, (time.process_time() - mine) / took
        print(f"{count} pods, {reports / took:.0f} answers a second: the hub uses {spent / took:.1%} "
              f"of a core, {spent / max(reports, 1) * 1e6:.0f} us an answer, {memory(hub):.0f} MiB; "
              f"the pods' process {ours:.1%}", flush=True)  # fmt: skip
        said = [await finding(pods, number) for number in range(times)]
        report("a finding to all pods", said)
        held = [await hold(pods, session, url, number) for number in range(times)]
        report("a hold to all pods", held)
        print(f"memory at the end {memory(hub):.0f} MiB")


async def start(folder: Path, count: int, stack: AsyncExitStack) -> tuple[int, str]:
    """Start the hub; return its process and its URL."""
    (folder / "0").mkdir()
    own = {"STEPWARDEN_DIR": str(folder / "0"), "STEPWARDEN_TOKEN": TOKEN, "STEPWARDEN_RANKS": str(count)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwarden_sidecar"),
        env={**os.environ, **own, "STEPWARDEN_PORT": "0", "STEPWARDEN_BIND": "127.0.0.1"},
        stderr=(folder / "log").open("w"),
    )
    stack.callback(process.kill)
    end = time.monotonic() + PATIENCE
    while not (folder / "0" / "port").exists():
        if process.returncode is not None or time.monotonic() > end:
            raise RuntimeError((folder / "log").read_text())
        await asyncio.sleep(0.05)
    return process.pid, f"http://127.0.0.1:{int((folder / '0' / 'port').read_text())}"


async def pod(folder: Path, number: int, count: int, url: str, stack: AsyncExitStack) -> Sidecar:
    """Make a pod: its sidecar without sockets, its link, and a rank that trains."""
    own = folder / str(number)
    own.mkdir()
    sidecar = Sidecar(Settings(directory=own, token=TOKEN, hub=url, pod=number, ranks=count))
    sidecar.restore()
    link = await stack.enter_async_context(Link(sidecar, url))
    link.answered = count_report
    for work in (link.push_forever(), link.listen_forever(), train(sidecar, number, count)):
        stack.callback(asyncio.create_task(work).cancel)
    return sidecar


def count_report() -> None:
    """Count an answer of the hub."""
    REPORTS[0] += 1


async def train(sidecar: Sidecar, rank: int, count: int) -> None:
    """Take a step a second, at another time than the other ranks."""
    step = 0
    await asyncio.sleep(rank / count)
    while True:
        now = time.time()
        sidecar.take([
            RankState(rank=rank, state="running", step=step, time=now, pid=rank),
            StepTaken(rank=rank, step=step, time=now, seconds=1.0, loss=2.5, gradient_norm=1.0),
            Pulse(rank=rank, step=step, time=now, median=1.0, spread=0.01, longest=1.1, steps=step),
        ])  # fmt: skip
        step += 1
        await asyncio.sleep(1.0)


async def finding(pods: Sequence[Sidecar], number: int) -> list[float]:
    """Let a rank fail; return how long each pod took to hear of it."""
    rank = 7 + number
    evidence = {"traceback": "x" * 4000, "local": True}
    said = {"message": "ZeroDivisionError", "rank": rank, "ranks": (rank,), "evidence": evidence}
    told = Finding(kind="RankFailed", severity="critical", step=10**6 + number, **said)
    return await heard(pods, lambda: pods[rank].take([told]), lambda each: told.step in steps(each))


def steps(sidecar: Sidecar) -> set[int]:
    """Return the steps of what a pod's ranks are told."""
    return {each.step for each in sidecar.orders.told}


async def hold(pods: Sequence[Sidecar], session: aiohttp.ClientSession, url: str, number: int) -> list[float]:
    """Ask for a hold, or for its end; return how long each pod took to hear of it."""
    wanted = number % 2 == 0

    def ask() -> None:
        asks.append(asyncio.create_task(put()))

    async def put() -> None:
        async with session.put(f"{url}/v1/instruction", json={"hold": wanted}) as answer:
            answer.raise_for_status()

    asks: list[asyncio.Task[None]] = []
    return await heard(pods, ask, lambda each: (each.orders.hold_at is not None) == wanted)


async def heard(
    pods: Sequence[Sidecar], begin: Callable[[], object], knows: Callable[[Sidecar], bool]
) -> list[float]:
    """Do something, and return the seconds after which each pod knows of it."""
    left, took, began = set(range(len(pods))), [], time.monotonic()
    begin()
    while left:
        done = {each for each in left if knows(pods[each])}
        took += [time.monotonic() - began] * len(done)
        left -= done
        if time.monotonic() > began + PATIENCE:
            message = f"{len(left)} pods have not heard of it"
            raise RuntimeError(message)
        await asyncio.sleep(0.005)
    await asyncio.sleep(1.0)
    return took


def report(what: str, runs: Sequence[Sequence[float]]) -> None:
    """Print the figures of some runs."""
    every = sorted(each for run in runs for each in run)
    p95 = every[int(0.95 * len(every))]
    last = statistics.median(max(run) for run in runs)
    print(f"{what}, {len(runs)} times: median {statistics.median(every):.3f} s, 95th percentile {p95:.3f} s, "
          f"the last pod {last:.3f} s (median of the times)", flush=True)  # fmt: skip


def busy(process: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(process: int) -> float:
    """Return a process' resident memory, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
