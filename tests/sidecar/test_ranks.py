import math

import pytest

from stepwarden.wire import RankState, StepTaken
from stepwarden_sidecar.ranks import BUCKETS, Ranks


def state(state="running", step=-1, pid=10, reason=""):
    return RankState(rank=0, state=state, step=step, time=1.0, pid=pid, reason=reason)


def step(step, seconds=0.5, **more):
    return StepTaken(rank=0, step=step, time=2.0, seconds=seconds, **more)


def after(*messages):
    ranks = Ranks(limit=4)
    for message in messages:
        ranks.said(message, 0.0) if isinstance(message, RankState) else ranks.stepped(message, 0.0)
    return ranks.known[0]


def test_the_last_words_are_what_is_reported():
    report = after(state(), step(3, loss=2.0, gradient_norm=4.0), state("held", 3, reason="Hold")).report(
        1, 1.0
    )
    assert (report.rank, report.pod, report.state, report.step, report.reason) == (0, 1, "held", 3, "Hold")
    assert (report.loss, report.gradient_norm) == (2.0, 4.0)


@pytest.mark.parametrize(
    ("messages", "reached"),
    [
        ([state(step=57)], 57),  # a sidecar that was started anew
        ([state(), step(3), state(step=4)], 3),  # the findings of step 4 may still be on their way
        ([state(), step(3), state("held", 4)], 4),
        ([step(3), state(step=3)], 3),
        ([state(pid=10), step(30), state(step=-1, pid=11)], -1),  # another process under the same number
        ([state(pid=10), step(30), state(step=30, pid=0)], 30),  # one that doesn't say which it is
    ],
)
def test_the_step_that_a_rank_has_been_through(messages, reached):
    assert after(*messages).step == reached


def test_speed_is_that_of_the_last_steps():
    slow, fast = [step(n, 10.0) for n in range(5)], [step(n, 0.1) for n in range(5, 15)]
    assert after(state(), *slow, *fast).steps_per_second == pytest.approx(10.0)
    assert after(state(), step(0, None)).steps_per_second is None
    assert after(state(), step(0, 0.0)).steps_per_second is None
    assert after(state(), *fast, state("held", 14)).steps_per_second is None


@pytest.mark.parametrize(
    ("now", "last", "reason"),
    [
        (5.0, "running", "waiting"),
        (12.4, "running", "silent for 12 s"),
        (12.4, "held", "silent for 12 s"),
        (99.0, "ended", "waiting"),
        (99.0, "failed", "waiting"),
    ],
)
def test_a_silent_rank_stays_what_it_was_and_the_reason_says_so(now, last, reason):
    report = after(state(last, 3, reason="waiting")).report(0, now)
    assert (report.state, report.reason) == (last, reason)


def test_an_agent_that_is_off_is_a_reason_and_a_probe_that_waits_for_its_turn_is_none():
    unknown = {"NonFiniteParameter": "NotDue"}
    said = RankState(rank=0, state="running", step=1, time=1.0, unknown=unknown)
    assert after(said).report(0, 0.0).reason == ""
    off = RankState(rank=0, state="running", step=1, time=1.0, unknown=unknown | {"agent": "AgentFailed"})
    assert after(said, off).report(0, 0.0).reason == "AgentFailed"


def test_step_times_are_counted_into_buckets():
    rank = after(*[step(n, seconds) for n, seconds in enumerate([0.001, 0.01, 0.02, 5.0, 1000.0, 0.02])])
    assert rank.counts == [2, 2, 0, 0, 0, 0, 1, 0, 0, 1]
    assert sum(rank.counts) == 6
    assert list(BUCKETS) == sorted(BUCKETS)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_time_that_is_none_spoils_no_sum(seconds):
    rank = after(step(1, 0.5, overhead_seconds=0.1), step(2, seconds, overhead_seconds=seconds))
    assert (rank.seconds, rank.overhead) == (0.5, 0.1)
    assert rank.steps_per_second == pytest.approx(2.0)


def test_numbers_that_no_rank_has():
    ranks = Ranks(limit=4)
    assert [ranks.valid(rank) for rank in (0, 3, 4, -1, None)] == [True, True, False, False, False]
