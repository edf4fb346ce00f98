"""A sidecar that is slow, or stands still: a finding waits a moment for room, then for its next chance."""

import socket
import threading

import pytest

from stepwarden import wire
from stepwarden.agent import link as lines

STATE = wire.RankState(rank=0, step=3, state="running", pid=1, time=0.0)


@pytest.fixture
def slow(tmp_path):
    """A sidecar's socket that nobody reads yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / wire.SIDECAR_SOCKET))
        made.settimeout(60)
        yield made


@pytest.fixture
def link(tmp_path, slow, monkeypatch, patience):  # noqa: ARG001 - it is what has no room
    """A line on which there is no room."""
    monkeypatch.setattr(lines, "PATIENCE", patience)
    made = lines.Link(str(tmp_path), 0)
    while made.say(STATE):
        pass
    yield made
    made.close()


def finding(step):
    return wire.Finding(kind="NonFiniteGradient", severity="critical", step=step, rank=0, message="")


def read(sidecar, last):
    """Read up to the finding of a step; return the steps of all findings."""
    steps = []
    while last not in steps:
        said = wire.from_line(sidecar.recv(wire.MAX_DATAGRAM))
        steps += [said.step] if isinstance(said, wire.Finding) else []
    return steps


@pytest.mark.parametrize("patience", [60.0])
def test_a_finding_waits_until_there_is_room(link, slow):
    heard = []
    reader = threading.Timer(0.02, lambda: heard.extend(read(slow, 4)))
    reader.start()
    link.say_finding(finding(4))
    reader.join()
    assert heard == [4]
    assert not link.unsent


@pytest.mark.parametrize("patience", [0.2])
def test_findings_for_which_there_is_no_room_are_said_again_in_their_order(link, slow):
    for step in (4, 5, 6):
        link.say_finding(finding(step))
    assert [kept.step for kept in link.unsent] == [4, 5, 6]
    link.say_again()
    assert [kept.step for kept in link.unsent] == [4, 5, 6]
    for _ in range(5):
        assert wire.from_line(slow.recv(wire.MAX_DATAGRAM)) == STATE
    link.say_last(finding(7))
    assert read(slow, 7) == [4, 5, 6, 7]
    assert link.dropped > 3
