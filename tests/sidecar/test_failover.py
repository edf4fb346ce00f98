"""Real sidecars of which any may be the hub: it is killed, and comes back."""

import time

import pytest

from .conftest import eventually, free_port

PODS = 3


@pytest.fixture
async def crew(sidecar, agent):
    """Three pods with a rank each, all known to the hub: pod 0."""
    port = free_port()
    settings = {
        "STEPWARDEN_HUB": f"http://127.0.1.{{pod}}:{port}",
        "STEPWARDEN_PODS": str(PODS),
        "STEPWARDEN_RANKS": str(PODS),
        "STEPWARDEN_PORT": str(port),
    }
    made = []
    for pod in range(PODS):
        own = {"STEPWARDEN_POD": str(pod), "STEPWARDEN_BIND": f"127.0.1.{pod}"}
        made.append(await sidecar(f"pod{pod}", **settings, **own))
    ranks = [agent(pod, number) for number, pod in enumerate(made)]
    for rank in ranks:
        rank.is_("running", 0)
    await eventually(lambda: whole(made[0]))
    return made, ranks


async def report(pod):
    """The job's report, where the pod is the hub."""
    try:
        status, _ = await pod.ask("GET", "/v1/job")
    except OSError:
        return None
    return await pod.job() if status == 200 else None


async def whole(pod):
    """Whether the pod is the hub, and knows all ranks."""
    found = await report(pod)
    return found and [each.rank for each in found.ranks] == list(range(PODS))


async def hubs(pods):
    """The pods that say they are the hub."""
    return [number for number, pod in enumerate(pods) if await report(pod)]


async def copied(pod, count):
    """Whether a standby has written down so many settled findings."""
    journal = pod.directory / "state" / "job.jsonl"
    return journal.exists() and len(journal.read_text().splitlines()) >= count


async def test_the_next_pod_takes_over_and_nothing_is_lost(crew):
    (first, second, third), ranks = crew
    ranks[0].finds(5, local=True)
    for rank in ranks:
        rank.takes(5)
    [before] = await eventually(first.found)
    await eventually(lambda: copied(second, 1))
    await first.kill()
    died = time.monotonic()
    ranks[2].finds(6, local=True)
    for rank in ranks[1:]:
        rank.takes(6)
    await eventually(lambda: report(second))
    took = time.monotonic() - died
    assert took < 10  # under two when the machine has nothing else to do
    findings = await eventually(lambda: second.found(2))
    assert findings[0] == before
    assert [(each.step, each.rank) for each in findings] == [(5, 0), (6, 2)]
    assert await hubs([second, third]) == [0]
