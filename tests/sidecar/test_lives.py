"""Ranks that die, as a real sidecar process sees them: by their lifelines and their launchers."""

import asyncio
import os
import socket
import time

import pytest

from stepwarden.pulse import Pulse, RankExit
from stepwarden.wire import LIFE_SOCKET, RankState, StepTaken, to_line

from .conftest import eventually


def connected(sidecar):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(str(sidecar.directory / LIFE_SOCKET))
    return line


def lifeline(sidecar, rank):
    """What a rank's agent does: it says once where it is, and keeps the connection."""
    line = connected(sidecar)
    state = RankState(rank=rank.rank, state="running", step=4, time=time.time(), pid=rank.pid)
    line.sendall(to_line(state).encode() + b"\n")
    return line


def exit_of(rank, code, **more):
    return RankExit(pid=rank.pid, code=code, time=time.time(), **more)


async def told(sidecar, said):
    """What a launcher does: it says a word, and waits for the answer. Returns how long that took."""
    began = time.monotonic()
    reader, writer = await asyncio.open_unix_connection(str(sidecar.directory / LIFE_SOCKET))
    writer.write(to_line(said).encode() + b"\n")
    assert await asyncio.wait_for(reader.readline(), 20) == b"told\n"
    writer.close()
    return time.monotonic() - began


@pytest.fixture
async def two(sidecar, agent):
    """A hub with ranks 0 and 1, and their lifelines."""
    hub = await sidecar(STEPWARDEN_RANKS="2")
    ranks = [agent(hub, 0, pid=100), agent(hub, 1, pid=101)]
    lines = [lifeline(hub, rank) for rank in ranks]
    await eventually(lambda: states(hub, "running", "running"))
    yield hub, ranks, lines
    for line in lines:
        line.close()


async def states(hub, *wanted):
    return tuple(each.state for each in (await hub.job()).ranks) == wanted


async def test_a_death_without_a_word_is_told_to_the_other_rank(two):
    hub, (first, second), (_, line) = two
    line.close()
    [finding] = await eventually(hub.found)
    assert (finding.kind, finding.severity, finding.rank, finding.step) == ("RankFailed", "critical", 1, 5)
    assert finding.message == "the process is gone without a word: nobody has said how it ended"
    assert await states(hub, "running", "failed")
    assert (await eventually(lambda: first.orders() and first.orders().told)) == (finding,)
    second.is_("running", 9)  # what it had said before it died, and comes late
    first.takes(7)
    await eventually(lambda: progress(hub, 7))
    assert await states(hub, "running", "failed")


async def progress(hub, step):
    return (await hub.job()).ranks[0].step == step


async def test_the_launcher_s_word_says_how_and_it_waits_until_the_other_rank_has_printed(two):
    hub, (first, second), (_, line) = two
    line.close()
    asked = asyncio.create_task(told(hub, exit_of(second, -9, oom_kills=1)))
    orders = await eventually(lambda: first.orders() and first.orders().told and first.orders())
    first.is_("running", 4)  # it has printed
    assert await asked < 10
    [finding] = orders.told
    assert "SIGKILL (out of memory" in finding.message
    assert (finding.evidence["signal"], finding.evidence["pid"]) == ("SIGKILL", 101)


async def test_a_crash_file_gives_the_stack_and_the_user_s_line(two):
    hub, (_, second), (_, line) = two
    stack = 'Current thread 0x1 (most recent call first):\n  File "/x/t.py", line 9 in f\n'
    stack = f"Fatal Python error: Aborted\n\n{stack}"
    (hub.directory / "rank-1.crash").write_text(stack)
    line.close()
    await told(hub, exit_of(second, -6))
    [finding] = await eventually(hub.found)
    assert (finding.file, finding.line, finding.evidence["signal"]) == ("/x/t.py", 9, "SIGABRT")
    assert "line 9 in f" in finding.evidence["traceback"]


@pytest.mark.parametrize(("step", "told"), [(5, True), (4, False)])
async def test_what_a_killed_rank_was_at_is_told_if_it_was_in_this_step(two, step, told):
    hub, (_, second), (_, line) = two
    second.send(Pulse(rank=1, step=step, time=0.0, phase="forward", file="/x/t.py", line=9))
    second.send(Pulse(rank=1, step=step, time=0.0, phase="backward"))  # without a look at its calls
    line.close()
    await eventually(lambda: states(hub, "running", "failed"))
    [finding] = await eventually(hub.found)
    assert finding.message.endswith("in the forward pass at /x/t.py:9") == told
    assert ("seen" in finding.evidence) == told


@pytest.mark.parametrize("asked", [True, False])
async def test_a_rank_that_is_asked_to_end_or_says_its_last_words_is_no_failure(two, asked):
    hub, (first, second), lines = two
    for rank, line in zip((first, second), lines, strict=True):
        if asked:
            await told(hub, exit_of(rank, -15, asked=True))
        else:
            rank.is_("ended", 4)
        line.close()
    await eventually(lambda: states(hub, "ended", "ended"))
    await hub.end()
    assert "RankFailed" not in hub.logged()


async def test_a_launcher_that_knows_better_than_the_rank_is_heard(two):
    hub, (_, second), (_, line) = two
    second.is_("ended", 4)
    line.close()
    await eventually(lambda: states(hub, "running", "ended"))
    second.send(exit_of(second, 3))  # in a datagram: nobody waits for an answer
    [finding] = await eventually(hub.found)
    assert finding.message == "the process ended with exit code 3"


async def test_who_raised_has_said_it_itself_and_a_stranger_is_no_rank(two):
    hub, (_, second), (_, line) = two
    second.finds(5, kind="RankFailed", local=True)
    second.is_("failed", 5)
    line.close()
    await told(hub, exit_of(second, 1))
    assert await told(hub, RankExit(pid=999, code=1, time=0.0)) < 10
    [finding] = await eventually(hub.found)
    assert finding.message == "gradient of rank 1 is NaN"
    assert finding.evidence["pid"] == 101


async def test_a_rank_in_another_pod_is_told_and_cause_comes_before_consequence(sidecar, agent):
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2")
    follower = await sidecar("pod1", STEPWARDEN_RANKS="2", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    first, second = agent(hub, 0, pid=100), agent(follower, 1, pid=100)
    lines = lifeline(hub, first), lifeline(follower, second)
    await eventually(lambda: states(hub, "running", "running"))
    first.finds(5, kind="RankFailed", local=False)  # it lost its peer, and is heard of first
    lines[1].close()
    second.send(exit_of(second, -9))
    [cause, consequence] = await eventually(lambda: hub.found(2))
    assert (cause.rank, cause.severity) == (1, "critical")
    assert (consequence.rank, consequence.severity, consequence.evidence["because"]) == (0, "info", 1)
    assert (await eventually(lambda: first.orders() and first.orders().told)) == (cause,)
    lines[0].close()


async def test_a_process_that_takes_the_place_of_another_is_not_told_what_ended_that(two, agent):
    hub, (first, second), (_, line) = two
    line.close()
    second.send(exit_of(second, -9))
    await eventually(lambda: first.orders() and first.orders().told)
    second.close()
    os.unlink(hub.directory / "rank-1.sock")  # noqa: PTH108 - as the agent does
    again = agent(hub, 1, pid=202)
    other = lifeline(hub, again)
    await eventually(again.orders)
    await eventually(lambda: first.orders().told == ())
    assert all(each.told == () for each in again.heard)
    other.close()
    again.send(exit_of(again, -9))
    findings = await eventually(lambda: hub.found(2))
    assert [each.evidence["pid"] for each in findings] == [101, 202]
    await eventually(lambda: [each.evidence["pid"] for each in first.orders().told] == [202])


async def test_a_killed_sidecar_says_nothing_of_ranks_that_live(two):
    hub, ranks, lines = two
    await hub.kill()
    for line in lines:
        assert line.recv(1) == b""
    await hub.start()
    kept = [lifeline(hub, rank) for rank in ranks]
    await eventually(lambda: states(hub, "running", "running"))
    code, _ = await hub.end()
    assert code == 0
    assert "is gone" not in hub.logged()
    for line in kept:
        line.close()


async def test_garbage_on_a_lifeline_is_counted_and_harms_nobody(two):
    hub, (first, _), _ = two
    for garbage in (
        b"\n",
        b"{}\n",
        b"x" * 200_000 + b"\n",
        to_line(StepTaken(rank=0, step=1, time=0.0)).encode(),
    ):
        stranger = connected(hub)
        stranger.sendall(garbage)
        stranger.close()
    first.is_("running", 8)
    await eventually(lambda: progress(hub, 8))
    assert "Traceback" not in hub.logged()
