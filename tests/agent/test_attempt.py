"""A process that takes a rank's place within its pod is another attempt; an acknowledgement is of one."""

import subprocess
import sys

import pytest

from stepwarden import wire
from stepwarden.agent.gate import waits
from stepwarden.agent.link import Link, count

AGAIN = "import pathlib, sys, stepwarden.agent.link as link; print(link.count(pathlib.Path(sys.argv[1])))"


@pytest.mark.parametrize(
    ("orders", "attempt", "step", "waiting"),
    [
        (wire.Orders(), 0, 0, True),
        (wire.Orders(acknowledged=7), 0, 7, False),
        (wire.Orders(acknowledged=7), 0, 8, True),
        (wire.Orders(acknowledged=7), 1, 7, True),  # those of before may reach a rank that is started again
        (wire.Orders(acknowledged=7), 1, 3, True),
        (wire.Orders(attempt=1, acknowledged=3), 1, 3, False),
        (wire.Orders(attempt=1, acknowledged=3), 1, 4, True),
        (wire.Orders(attempt=1, acknowledged=3), 0, 9, False),  # a rank in a pod that is new counts from 0
    ],
)
def test_a_finding_waits_until_it_is_acknowledged_in_its_own_attempt(orders, attempt, step, waiting):
    assert waits(step, orders, finding=True, attempt=attempt) == waiting
    assert not waits(step, orders, finding=False, attempt=attempt)


@pytest.mark.parametrize("before", ["", "torn", "1", "3 4 5"])
def test_a_file_that_says_nothing_begins_anew(tmp_path, before):
    path = tmp_path / "rank-0.attempt"
    path.write_text(before)
    assert count(path) == 0


def test_a_folder_that_takes_no_file_takes_no_agent_off(tmp_path):
    assert count(tmp_path / "missing" / "rank-0.attempt") == 0


def test_each_process_counts_and_none_twice(tmp_path):
    path = tmp_path / "rank-0.attempt"
    assert [count(path), count(path)] == [0, 0]
    assert subprocess.check_output([sys.executable, "-c", AGAIN, str(path)]) == b"1\n"
    assert count(path) == 2
    one, other = Link(str(tmp_path), 0), Link(str(tmp_path), 1)
    assert (one.attempt, other.attempt) == (2, 0)
    one.close()
    other.close()
