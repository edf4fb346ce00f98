"""Two real sidecars: the hub, and one that follows it."""

import asyncio

import pytest

from .conftest import eventually


@pytest.fixture
async def pair(sidecar, agent):
    """The hub with rank 0, a follower with rank 1, and both known to the hub."""
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2")
    follower = await sidecar("pod1", STEPWARDEN_RANKS="2", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    ranks = agent(hub, 0), agent(follower, 1)
    for rank in ranks:
        rank.is_("running", 0)
    await eventually(lambda: pods(hub))
    return hub, follower, *ranks


async def pods(hub):
    """Whether both ranks are known, by their pods."""
    return [(each.rank, each.pod) for each in (await hub.job()).ranks] == [(0, 0), (1, 1)]


async def is_at(hub, state, step):
    return {(each.state, each.step) for each in (await hub.job()).ranks} == {(state, step)}


async def test_a_finding_on_both_pods_is_one_that_names_the_right_rank(pair):
    hub, _, first, second = pair
    before = await hub.job()
    poll = asyncio.create_task(hub.job(before.version, wait=30))
    for rank in (first, second):
        rank.finds(5, local=rank is second)
        rank.takes(5)
    [finding] = (await poll).findings
    assert (finding.step, finding.rank, finding.ranks, finding.parameter) == (5, 1, (0, 1), "p1")


async def test_holds_agree(pair):
    hub, _, first, second = pair
    hold_at = (await hub.instruct(hold=True)).orders.hold_at
    for rank in (first, second):
        orders = await eventually(rank.orders)
        await eventually(lambda rank=rank: rank.orders().hold_at == hold_at)
        assert orders is not None
    first.is_("held", hold_at)
    second.takes(hold_at + 2)  # it heard of it too late
    for rank in (first, second):
        await eventually(lambda rank=rank: rank.orders().hold_at > hold_at + 2)
    raised = second.orders().hold_at
    for rank in (first, second):
        rank.is_("held", raised)
    await eventually(lambda: is_at(hub, "held", raised))
    assert (await hub.job()).orders.hold_at == raised
    await hub.instruct(hold=False)
    for rank in (first, second):
        await eventually(lambda rank=rank: rank.orders().hold_at is None)


async def test_a_pod_that_starts_late_is_held_at_its_first_boundary(sidecar, agent):
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2")
    assert (await hub.instruct(hold=True)).orders.hold_at == 0
    first = agent(hub, 0)
    first.is_("running", -1)
    follower = await sidecar("pod1", STEPWARDEN_RANKS="2", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    second = agent(follower, 1)
    second.is_("running", -1)
    for rank in (first, second):
        await eventually(lambda rank=rank: rank.orders() and rank.orders().hold_at == 0)
        rank.is_("held", 0)
    await eventually(lambda: is_at(hub, "held", 0))
    assert (await hub.job()).orders.hold_at == 0


async def test_an_acknowledgement_reaches_every_rank(pair):
    hub, _, first, second = pair
    await hub.instruct(acknowledged=5, update="apply")
    for rank in (first, second):
        await eventually(lambda rank=rank: rank.orders() and rank.orders().acknowledged == 5)
        assert rank.orders().update == "apply"


async def test_a_follower_knows_no_job(pair):
    _, follower, *_ = pair
    status, text = await follower.ask("GET", "/v1/job")
    assert (status, "isn't the job's hub" in text) == (404, True)
    assert (await follower.ask("PUT", "/v1/instruction", data="{}"))[0] == 404


async def test_a_hub_that_is_killed_learns_all_again(pair):
    hub, follower, first, second = pair
    second.finds(5, local=True)
    for rank in (first, second):
        rank.takes(5)
    [before] = await eventually(hub.found)
    hub.environment["STEPWARDEN_PORT"] = str(hub.port)  # where the follower looks for it
    await hub.kill()
    second.finds(6, local=True)
    second.takes(6)
    second.is_("held", 6)
    await eventually(lambda: "doesn't answer" in follower.logged())
    await hub.start()
    first.is_("held", 6)
    findings = await eventually(lambda: hub.found(2))
    assert findings[0] == before
    assert [(each.step, each.rank) for each in findings] == [(5, 1), (6, 1)]
    await hub.instruct(acknowledged=6)
    await eventually(lambda: second.orders() and second.orders().acknowledged == 6)
    await eventually(lambda: follower.logged().count("answers again") == 1)


async def test_a_follower_that_is_killed_comes_back_with_its_orders_although_the_hub_is_gone(pair):
    hub, follower, _, second = pair
    await hub.instruct(acknowledged=4, update="apply", hold=True)
    await eventually(lambda: second.orders() and second.orders().acknowledged == 4)
    orders = second.orders()
    await hub.kill()
    await follower.kill()
    second.heard.clear()
    await follower.start()
    second.is_("held", 4)
    await eventually(lambda: second.orders() == orders)


async def test_the_hub_hears_how_a_follower_s_rank_ended_before_the_follower_does(pair):
    hub, follower, _, second = pair
    second.is_("ended", 7)
    code, _ = await follower.end()
    assert code == 0
    await eventually(lambda: last_state(hub, 1))


async def last_state(hub, rank):
    return {each.rank: each.state for each in (await hub.job()).ranks}[rank] == "ended"


async def test_a_follower_with_another_token_is_refused_and_serves_its_ranks_all_the_same(sidecar, agent):
    hub = await sidecar("pod0")
    settings = {"STEPWARDEN_POD": "1", "STEPWARDEN_HUB": hub.url, "STEPWARDEN_TOKEN": "another"}
    follower = await sidecar("pod1", **settings)
    rank = agent(follower, 1)
    rank.is_("running", 0)
    assert await eventually(rank.orders)
    await eventually(lambda: "401" in follower.logged())
    assert (await hub.job()).ranks == ()
