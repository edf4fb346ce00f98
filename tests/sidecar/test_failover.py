"""Real sidecars of which any may be the hub: it is killed, and comes back."""

import asyncio
import json
import signal
import time

import pytest

from stepwarden.wire import to_dict

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
    own = [{"STEPWARDEN_POD": str(pod), "STEPWARDEN_BIND": f"127.0.1.{pod}"} for pod in range(PODS)]
    made = await asyncio.gather(*(sidecar(f"pod{pod}", **settings, **own[pod]) for pod in range(PODS)))
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


def once(findings):
    """The findings' steps and ranks; each is there once."""
    found = [(each.step, each.rank) for each in findings]
    assert len(found) == len(set(found))
    return sorted(found)


async def test_the_next_pod_takes_over_and_nothing_is_lost(crew):
    (first, second, third), ranks = crew
    ranks[0].finds(5, local=True)
    for rank in ranks:
        rank.takes(5)
    [before] = await eventually(first.found)
    await eventually(lambda: copied(second, 1))
    ranks[1].finds(6, local=True)  # not settled yet: the others have not been through that step
    await first.kill()
    died = time.monotonic()
    ranks[2].finds(7, local=True)
    for rank in ranks[1:]:
        rank.takes(7)
    await eventually(lambda: report(second))
    assert time.monotonic() - died < 10  # about one when the machine has nothing else to do
    findings = await eventually(lambda: second.found(3))
    assert findings[0] == before
    assert once(findings) == [(5, 0), (6, 1), (7, 2)]
    assert await hubs([second, third]) == [0]


async def test_a_hub_that_comes_back_follows_and_brings_what_only_it_knew(crew):
    pods, ranks = crew
    await pods[0].kill()
    await eventually(lambda: report(pods[1]))
    ranks[2].finds(8, local=True)
    for rank in ranks[1:]:
        rank.takes(8)
    await eventually(lambda: pods[1].found(1))
    await pods[0].start()
    ranks[0].is_("running", 8)
    ranks[0].finds(8, local=False)  # settled already without it
    ranks[0].finds(9, local=True)
    for rank in ranks:
        rank.takes(9)
    assert once(await eventually(lambda: pods[1].found(2))) == [(8, 2), (9, 0)]
    assert await hubs(pods) == [1]
    status, text = await pods[0].ask("GET", "/v1/job")
    assert (status, pods[1].url in text) == (404, True)
    await pods[1].kill()
    findings = await eventually(lambda: found(pods[0], 2))
    assert once(findings) == [(8, 2), (9, 0)]
    assert await hubs([pods[0], pods[2]]) == [0]


async def found(pod, count):
    """The findings of a pod, once it is the hub and knows so many."""
    known = await report(pod)
    return known.findings if known and len(known.findings) >= count else None


@pytest.mark.parametrize("standby", [True, False])
async def test_a_hold_outlasts_its_hub(crew, standby):
    pods, ranks = crew
    orders = (await pods[0].instruct(hold=True, acknowledged=3, update="apply")).orders
    for rank in ranks:
        await eventually(lambda rank=rank: rank.orders() == orders)
        rank.is_("held", orders.hold_at, "hold")
    if not standby:  # it had no time to copy what the operator wants, and knows the orders alone
        await pods[1].kill()
        await pods[2].kill()
    await pods[0].kill()
    if not standby:
        (pods[1].directory / "state" / "orders.json").write_text(
            json.dumps({"orders": to_dict(orders), "instruction": {}})
        )
        await asyncio.gather(pods[1].start(), pods[2].start())
        for rank in ranks[1:]:
            rank.is_("held", orders.hold_at, "hold")  # as agents say each second
    after = await eventually(lambda: report(pods[1]))
    assert after.orders == orders
    for rank in ranks[1:]:
        rank.heard.clear()
        assert await eventually(lambda rank=rank: rank.orders() == orders)
        assert set(rank.heard) == {orders}
    released = (await pods[1].instruct(hold=False, acknowledged=3, update="apply")).orders
    assert released.hold_at is None
    await eventually(lambda: ranks[2].orders() == released)


async def test_a_hub_that_only_stood_still_gives_way(crew):
    pods, ranks = crew
    pods[0].process.send_signal(signal.SIGSTOP)
    try:
        stopped = time.monotonic()
        await eventually(lambda: report(pods[1]))
        assert time.monotonic() - stopped < 10  # under two when the machine has nothing else to do
        assert (await pods[1].instruct(hold=True)).orders.hold_at is not None
    finally:
        pods[0].process.send_signal(signal.SIGCONT)
    ranks[0].finds(4, local=True)
    assert once(await eventually(lambda: found(pods[1], 1))) == [(4, 0)]
    orders = (await pods[1].job()).orders
    for rank in ranks:
        await eventually(lambda rank=rank: rank.orders() == orders)
    assert await hubs(pods) == [1]


async def test_what_two_hubs_settled_at_the_same_time_is_known_to_the_one_that_stays(crew):
    pods, ranks = crew
    pods[0].process.send_signal(signal.SIGSTOP)
    await eventually(lambda: report(pods[1]))
    ranks[0].finds(4, local=True)  # it waits in the socket of the one that stands still
    pods[0].process.send_signal(signal.SIGCONT)
    assert once(await eventually(lambda: found(pods[1], 1))) == [(4, 0)]
    assert await hubs(pods) == [1]


async def test_a_later_term_that_nobody_leads_in_is_outbid(crew):
    pods, _ = crew
    view = {"pod": 1, "hub": 1, "term": 7, "age": 0.0}  # as if it had taken over
    status, _ = await pods[0].ask("POST", "/v1/view", data=json.dumps(view))
    assert status == 200
    await eventually(lambda: term(pods[0]) > 7)
    await eventually(lambda: one_hub(pods))
    await eventually(lambda: whole(pods[0]))


def term(pod):
    return json.loads((pod.directory / "state" / "term.json").read_text())["term"]


async def one_hub(pods):
    return len(await hubs(pods)) == 1
