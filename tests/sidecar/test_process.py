"""One real sidecar process, over its real sockets."""

import asyncio
import io
import json
import os
import subprocess
import sys

import pytest

from stepwarden.wire import Orders

from .conftest import eventually

NAN = "NonFiniteGradient"


async def test_a_finding_of_two_ranks_answers_a_long_poll(sidecar, agent):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    ranks = [agent(hub, 0), agent(hub, 1)]
    for rank in ranks:
        rank.is_("running", -1)
    before = await eventually(lambda: knows(hub, 2))
    poll = asyncio.create_task(hub.job(before.version, wait=30))
    for rank in ranks:
        rank.finds(3, local=rank.rank == 1)
        rank.takes(3)
    report = await asyncio.wait_for(poll, 60)
    [finding] = report.findings
    assert (finding.kind, finding.step, finding.rank, finding.ranks) == (NAN, 3, 1, (0, 1))
    assert (finding.parameter, finding.message) == ("p1", "gradient of rank 1 is NaN")


async def knows(hub, count):
    report = await hub.job()
    return report if len(report.ranks) == count else None


async def test_healthy_steps_do_not_end_a_long_poll_but_are_in_its_answer(sidecar, agent):
    hub = await sidecar()
    rank = agent(hub, 0)
    rank.is_("running", -1)
    before = await eventually(lambda: knows(hub, 1))
    poll = asyncio.create_task(hub.job(before.version, wait=0.5))
    for step in range(12):
        rank.takes(step, loss=float(step), seconds=0.25)
        await asyncio.sleep(0)
    after = await poll
    assert after.version == before.version
    [report] = after.ranks
    assert (report.step, report.loss, report.gradient_norm, report.state) == (11, 11.0, 1.5, "running")
    assert report.steps_per_second == pytest.approx(4.0)


async def test_a_person_holds_and_releases(sidecar, agent):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    ranks = [agent(hub, 0), agent(hub, 1)]
    for rank in ranks:
        rank.is_("running", 4)
    await eventually(lambda: knows(hub, 2))
    report = await hub.instruct(hold=True, acknowledged=2, update="apply")
    hold_at = report.orders.hold_at
    assert hold_at > 4
    told = Orders(hold_at=hold_at, acknowledged=2, update="apply")
    for rank in ranks:
        await eventually(lambda rank=rank: rank.orders() == told)
        rank.is_("held", hold_at, "hold")
    again = await hub.instruct(hold=True, acknowledged=2, update="apply")
    assert again.orders == told
    await hub.instruct(hold=False)
    released = Orders(acknowledged=2, update="apply")  # an older acknowledgement takes nothing back
    for rank in ranks:
        await eventually(lambda rank=rank: rank.orders() == released)


async def test_orders_are_said_again_each_second(sidecar, agent):
    hub = await sidecar()
    rank = agent(hub, 0)
    rank.is_("running", 0)
    await eventually(lambda: rank.orders() and len(rank.heard) >= 3)
    assert set(rank.heard) == {Orders()}


async def test_a_killed_sidecar_comes_back_and_knows(sidecar, agent, folder):
    hub = await sidecar(STEPWARDEN_RANKS="1", STEPWARDEN_REPORT=str(folder / "report"))
    rank = agent(hub, 0)
    rank.is_("running", 2)
    rank.finds(3, local=True)
    rank.takes(3)
    await eventually(hub.found)
    before = await hub.instruct(hold=True, acknowledged=3, update="skip")
    await hub.kill()
    with pytest.raises(ConnectionRefusedError):
        rank.takes(4)
    await hub.start()
    after = await hub.job()
    assert (after.findings, after.orders) == (before.findings, before.orders)
    assert after.version != before.version
    rank.finds(3, local=True)  # as an agent does that is not sure
    rank.takes(3)
    rank.is_("held", 3)
    await eventually(lambda: rank.orders() == before.orders)
    rank.finds(9, local=True)
    rank.is_("held", 9)
    assert [each.step for each in await eventually(lambda: hub.found(2))] == [3, 9]
    written = (folder / "report" / "findings.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in written] == [3, 9]


async def test_the_report_folder(sidecar, agent, folder):
    hub = await sidecar(STEPWARDEN_RANKS="2", STEPWARDEN_REPORT=str(folder / "a" / "report"))
    ranks = [agent(hub, 0), agent(hub, 1)]
    for rank in ranks:
        rank.is_("running", -1)
        rank.takes(0, loss=float("nan"))
        rank.finds(1, local=rank.rank == 0)
        rank.takes(1)
    await eventually(hub.found)
    findings, steps = (
        [json.loads(line) for line in (folder / "a" / "report" / name).read_text().splitlines()]
        for name in ("findings.jsonl", "steps.jsonl")
    )
    assert [(each["kind"], each["rank"], each["ranks"]) for each in findings] == [(NAN, 0, [0, 1])]
    assert sorted((each["rank"], each["step"]) for each in steps) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert steps[0]["loss"] == "NaN"


async def test_the_token_is_asked_for(sidecar):
    hub = await sidecar()
    paths = [("GET", "/v1/job"), ("PUT", "/v1/instruction"), ("POST", "/v1/pods"), ("GET", "/v1/orders")]
    for method, path in [*paths, ("GET", "/v1/unheard-of")]:
        for token in (None, "", "another", "a-token-"):
            status, text = await hub.ask(method, path, token=token)
            assert (status, "STEPWARDEN_TOKEN" in text) == (401, True)
    assert await hub.ask("GET", "/healthz", token=None) == (200, "ok\n")
    assert (await hub.ask("GET", "/metrics", token=None))[0] == 200


async def test_garbage_is_counted_and_passed_over(sidecar, agent):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    rank, stranger = agent(hub, 0), agent(hub, 7)
    for garbage in (b"", b"\xff\x00", b"[" * 50_000, b"{}", b'{"type":"orders"}', b"x" * 150_000):
        rank.send(garbage)
    stranger.is_("running", 1)  # a rank that a job of two can't have
    for body in (b"{", b"[]", b"[" * 50_000, b'{"hold": "perhaps", "acknowledged": []}', b"\xff"):
        assert (await hub.ask("PUT", "/v1/instruction", data=body))[0] == 400
    assert (await hub.ask("POST", "/v1/pods", data=b'{"pod": "x"}'))[0] == 400
    assert (await hub.ask("GET", "/v1/job?version=x&wait=soon"))[0] == 400
    assert (await hub.ask("PUT", "/v1/instruction", data=io.BytesIO(b"x" * 2_000_000)))[0] == 413
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(b"\x16\x03\x01 what is this\r\n\r\n")
    assert b"400" in await reader.readline()
    writer.close()
    rank.is_("running", 1)
    assert [each.rank for each in (await eventually(lambda: knows(hub, 1))).ranks] == [0]
    _, page = await hub.ask("GET", "/metrics", token=None)
    [line] = [line for line in page.splitlines() if line.startswith("stepwarden_malformed_messages_total")]
    assert float(line.split()[-1]) == 6 + 1 + 5 + 1 + 1 + 1
    assert "Traceback" not in hub.logged()


async def test_sigterm_ends_it_at_once_and_answers_who_waits(sidecar, agent):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    rank = agent(hub, 0)
    rank.is_("running", 0)
    before = await eventually(lambda: knows(hub, 1))
    poll = asyncio.create_task(hub.job(before.version, wait=60))
    await asyncio.sleep(0)  # the poll is under way before
    rank.finds(1)  # rank 1 has not been heard of, so that it is not settled yet
    await eventually((hub.directory / "state" / "findings.jsonl").exists)
    assert (await hub.job()).findings == ()
    code, seconds = await hub.end()
    assert code == 0
    assert seconds < 5  # under one when the machine has nothing else to do
    [finding] = (await poll).findings
    assert finding.step == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "STEPWARDEN_DIR is not set"),
        ({"STEPWARDEN_DIR": "/nowhere", "STEPWARDEN_TOKEN": "t"}, "No such file or directory"),
        ({"STEPWARDEN_DIR": "/", "STEPWARDEN_TOKEN": "t", "STEPWARDEN_PORT": "x"}, "STEPWARDEN_PORT is 'x'"),
    ],
)
def test_what_it_can_not_start_from_is_one_line(settings, sentence):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPWARDEN_")}
    ended = subprocess.run(
        [sys.executable, "-m", "stepwarden_sidecar"],
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    [line] = ended.stderr.splitlines()
    assert sentence in line


async def test_a_port_that_is_taken_is_one_line(sidecar, folder):
    hub = await sidecar()
    (folder / "other").mkdir()
    settings = {
        "STEPWARDEN_DIR": str(folder / "other"),
        "STEPWARDEN_TOKEN": "t",
        "STEPWARDEN_PORT": str(hub.port),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stepwarden_sidecar"),
        env=os.environ | settings | {"STEPWARDEN_BIND": "127.0.0.1"},
        stderr=subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    [line] = errors.decode().splitlines()
    assert "address already in use" in line
