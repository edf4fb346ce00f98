"""One cycle of one job, against an API that kmock keeps and a hub that aiohttp serves."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from stepwarden.wire import Finding, Instruction, JobReport, Orders, RankReport, from_line, to_line
from stepwarden_operator.api import Api
from stepwarden_operator.hub import Hub
from stepwarden_operator.keeper import Clock, Keeper
from stepwarden_operator.poller import ask as ask_hub
from stepwarden_operator.poller import hub_pod
from stepwarden_operator.settings import Settings

TRAINING_JOB = ("stepwarden.dev/v1alpha1/trainingjobs", "ns", "tiny")
JOB = ("batch/v1/jobs", "ns", "tiny")
NAN = Finding(
    kind="NonFiniteGradient", severity="critical", step=47, message="it holds NaN", rank=0, ranks=(0,)
)


def training_job(**spec):
    template = {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}
    meta = {"name": "tiny", "namespace": "ns", "uid": "u1", "generation": 1, "resourceVersion": "1"}
    return {
        "apiVersion": "stepwarden.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": meta,
        "spec": {"template": template, **spec},
    }


def pod(job_uid):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "tiny-0-x",
            "namespace": "ns",
            "uid": "p0",
            "resourceVersion": "1",
            "labels": {"stepwarden.dev/job": "tiny"},
            "ownerReferences": [{"uid": job_uid, "controller": True}],
        },
        "status": {
            "podIP": "127.0.0.1",
            "phase": "Running",
            "containerStatuses": [{"name": "trainer", "state": {"running": {}}}],
        },
    }


class PlayedHub:
    """A hub whose ranks do at once what they are told."""

    def __init__(self):
        self.told = []
        self.report = self.say("running")

    def say(self, state, **orders):
        rank = RankReport(rank=0, pod=0, state=state, step=47, time=0.0)
        findings = (NAN,) if state == "held" else ()
        return JobReport(version=state, ranks=(rank,), findings=findings, orders=Orders(**orders))

    async def job(self, _):
        return web.Response(text=to_line(self.report))

    async def instruction(self, request):
        told = from_line(await request.text())
        self.told.append(told)
        orders = {"acknowledged": told.acknowledged, "update": told.update}
        self.report = self.say(
            "held" if told.hold else "running", hold_at=47 if told.hold else None, **orders
        )
        return web.Response(text=to_line(self.report))


class World:
    """A cluster with one TrainingJob, and an operator that moves only when it is told to."""

    def __init__(self, kmock, hub, port):
        self.kmock, self.hub, self.port = kmock, hub, port
        self.restart()

    def restart(self):
        """What SIGKILL and a new pod do: nothing stays in memory."""
        configuration = Configuration(host=str(self.kmock.url).rstrip("/"))
        settings = Settings(image="stepwarden:1", key=b"key")
        self.keeper = Keeper(Api(ApiClient(configuration)), Hub(self.port), settings)
        self.clock = Clock()

    async def close(self):
        await self.keeper.hub.close()
        await self.keeper.api.close()

    async def turn(self):
        """Hear what the watches say, ask the hub, and act. Returns how many calls that wrote."""
        await self.keeper.load()
        entry = self.keeper.view.training_job(None, self.kmock.objects[TRAINING_JOB].raw)
        if found := hub_pod(entry, None, 0):
            await ask_hub(entry, self.keeper.hub, "token", found)
        before = len(self.writes())
        await self.keeper.cycle(entry, self.clock)
        return len(self.writes()) - before

    def writes(self):
        return [request for request in self.kmock if request.method in ("POST", "PATCH")]

    def start_pod(self):
        uid = self.kmock.objects[JOB]["metadata"]["uid"]
        self.kmock.objects["v1/pods", "ns", "tiny-0-x"] = pod(uid)

    def status(self):
        return self.kmock.objects[TRAINING_JOB]["status"]

    def events(self):
        keys = [key for key in self.kmock.objects if key[0].plural == "events"]
        return sorted(self.kmock.objects[key]["reason"] for key in keys)


@pytest.fixture
async def world(kmock, cluster):
    kmock.resources.update(cluster)
    kmock.objects[TRAINING_JOB] = training_job()
    hub = PlayedHub()
    app = web.Application()
    app.add_routes([web.get("/v1/job", hub.job), web.put("/v1/instruction", hub.instruction)])
    async with TestServer(app, host="127.0.0.1") as server:
        made = World(kmock, hub, server.port)
        yield made
        await made.close()


async def settle(world):
    """Turn until nothing is written; give up after a few."""
    for _ in range(5):
        if not await world.turn():
            return
    pytest.fail("it never settles")


async def test_the_second_turn_writes_nothing(world):
    assert await world.turn() >= 4
    await settle(world)
    assert world.status()["phase"] == "Pending"
    assert await world.turn() == 0


async def test_the_whole_story_with_a_killed_operator_at_every_turn(world):
    async def act():
        await settle(world)
        await world.close()
        world.restart()

    await act()
    world.start_pod()
    await act()
    assert world.status()["phase"] == "Running"
    world.hub.report = world.hub.say("held")
    await act()
    assert world.status()["phase"] == "Held"
    assert world.hub.told == [Instruction(hold=True)]
    body = world.kmock.objects[TRAINING_JOB]
    body.patch({"metadata": {"annotations": {"stepwarden.dev/acknowledge": "47,apply"}}})
    await act()
    assert world.hub.told[-1] == Instruction(hold=False, acknowledged=47, update="apply")
    assert world.status()["phase"] == "Running"
    ended = {
        "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    }
    world.kmock.objects[JOB].patch({"status": ended})
    await act()
    assert world.status()["phase"] == "Complete"
    assert world.status()["findingsCount"] == 1
    told = ["Completed", "Created", "FindingMade", "Held", "Resumed", "Started"]
    assert world.events() == told


async def test_a_spec_that_cannot_be_meant_is_said_in_a_condition(world):
    world.kmock.objects[TRAINING_JOB] = training_job(onFinding=[{"action": "Resume"}])
    assert await world.turn() == 1
    [condition] = world.status()["conditions"]
    assert condition["reason"] == "InvalidSpec"
    assert "'Resume' is not an action" in condition["message"]
    assert await world.turn() == 0


async def test_a_job_of_someone_else_is_not_taken(world):
    meta = {"name": "tiny", "namespace": "ns", "uid": "theirs", "resourceVersion": "1"}
    world.kmock.objects[JOB] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}
    await settle_refused(world)
    condition = world.status()["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Accepted", "NameTaken")
    assert world.kmock.objects[JOB]["metadata"]["uid"] == "theirs"


async def settle_refused(world):
    async with asyncio.timeout(10):
        while "status" not in world.kmock.objects[TRAINING_JOB]:
            await world.turn()


def leave(world):
    """What the garbage collector does behind a Job that was deleted."""
    del world.kmock.objects["v1/pods", "ns", "tiny-0-x"]


async def test_a_restart_with_a_killed_operator_at_every_turn(world):
    rule = {"kinds": ["RankFailed"], "action": "Restart"}
    world.kmock.objects[TRAINING_JOB] = training_job(onFinding=[rule], restartBackoff="0s")
    await settle(world)
    world.start_pod()
    await settle(world)
    uid = world.kmock.objects[JOB]["metadata"]["uid"]
    died = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
    dead = {"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": died}]}
    world.kmock.objects["v1/pods", "ns", "tiny-0-x"].patch({"status": dead})
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    world.kmock.objects[JOB].patch({"status": {"conditions": [failed]}})
    for _ in range(6):
        await world.turn()
        await world.close()
        world.restart()
        if JOB not in world.kmock.objects and ("v1/pods", "ns", "tiny-0-x") in world.kmock.objects:
            leave(world)
    made = world.kmock.objects[JOB]["metadata"]
    assert made["uid"] != uid
    assert made["annotations"]["stepwarden.dev/restarts"] == "1"
    assert (world.status()["phase"], world.status()["restarts"], world.status()["run"]) == ("Pending", 1, 1)
    deleted = [request for request in world.kmock if request.method == "DELETE"]
    assert [request.data["preconditions"] for request in deleted] == [{"uid": uid}]
    assert world.events().count("Restarted") == 1
    await settle(world)
