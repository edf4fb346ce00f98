"""Which pod's sidecar the operator asks for a job's report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden_operator.observe import Pod
from stepwarden_operator.poller import choose


def pod(index, **more):
    return Pod(**{"name": f"j-{index}", "uid": f"u{index}", "index": index, "ip": f"10.0.0.{index}"} | more)


@pytest.mark.parametrize(
    ("pods", "hub", "failures", "asked"),
    [
        ([], None, 0, None),
        ([pod(1), pod(0)], None, 0, 0),
        ([pod(0, ip=""), pod(1)], None, 0, 1),
        ([pod(0, finished=True), pod(1)], None, 0, 1),
        ([pod(0, terminating=True), pod(1)], None, 0, 1),
        ([pod(0), pod(1), pod(2)], 2, 0, 2),
        ([pod(0), pod(1), pod(2)], 2, 5, 2),
        ([pod(0), pod(1, terminating=True)], 1, 0, 0),
        ([pod(0), pod(1), pod(2)], 7, 0, 0),
        ([pod(0), pod(1), pod(2)], None, 1, 1),
        ([pod(0), pod(1), pod(2)], None, 4, 1),
    ],
)
def test_table(pods, hub, failures, asked):
    found = choose(pods, hub, failures)
    assert (found and found.index) == asked


@given(st.sets(st.integers(0, 20), min_size=1), st.integers(0, 100))
def test_every_pod_has_its_turn_while_none_answers(indices, failures):
    pods = [pod(index) for index in indices]
    asked = {choose(pods, None, failures + more).index for more in range(len(pods))}
    assert asked == indices
