from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.attempt import attempt_of, stamped
from stepwarden.wire import Finding, Orders, RankReport
from stepwarden_sidecar.job import KEPT, SETTLE, Job


def at(rank, step, state="running", **more):
    return RankReport(rank=rank, pod=rank, state=state, step=step, time=0.0, **more)


def found(rank, step=7, kind="NonFiniteGradient", local=None):
    return Finding(
        kind=kind,
        severity="critical",
        step=step,
        message="m",
        rank=rank,
        ranks=(rank,),
        evidence={"local": local},
    )


def job(*ranks, expected=2, limit=16):
    made = Job(expected, limit)
    made.heard(ranks, 0.0)
    return made


@pytest.mark.parametrize(
    ("ranks", "expected", "settled"),
    [
        ([at(0, 7), at(1, 7)], 2, True),
        ([at(0, 7, "held"), at(1, 9)], 2, True),
        ([at(0, 7), at(1, 6)], 2, False),
        ([at(0, 7)], 2, False),  # rank 1 has not been heard of
        ([at(0, 7)], None, True),  # nor is it known to exist
        ([at(0, 7), at(1, 6, "failed")], 2, True),
        ([at(0, 7), at(1, 6, "ended")], 2, True),
        ([], None, True),
    ],
)
def test_a_finding_is_settled_once_all_that_live_went_through_its_step(ranks, expected, settled):
    made = job(*ranks, expected=expected)
    made.found([found(0)], 0.0)
    assert bool(made.settle(0.0)) == settled
    assert bool(made.settle(SETTLE)) != settled  # in any case it is published after a while, once


def test_what_two_ranks_found_is_one_finding_that_names_the_right_rank():
    made = job(at(0, 7), at(1, 6))
    made.found([found(0, local=False)], 0.0)
    assert not made.settle(0.1)
    made.found([found(1, local=True)], 0.2)
    made.heard([at(1, 7)], 0.2)
    [merged] = made.settle(0.2)
    assert (merged.rank, merged.ranks) == (1, (0, 1))


def test_a_failed_rank_is_published_at_once():
    made = job(at(0, 3), at(1, 3))
    made.found([found(1, kind="RankFailed")], 0.0)
    [merged] = made.settle(0.0)
    assert merged.rank == 1


def test_what_is_settled_stays_as_it_was_published():
    made = job(at(0, 7))
    made.found([found(0)], 0.0)
    before = made.settle(SETTLE)
    made.found([found(0), found(1, local=True)], 2.0)
    assert made.settle(9.0) == []
    assert list(made.settled.values()) == before


def test_what_was_bad_in_one_attempt_is_not_bad_in_the_next():
    made = job(at(0, 7, "held"), at(1, 7, "held"))
    made.found([found(0, kind="NonFiniteLoss")], 0.0)
    assert made.unsound == 7
    made.heard([at(0, -1, attempt=1)], 1.0)
    assert (made.unsound, made.begun_anew(), made.begun_anew()) == (-1, True, False)
    made.found([found(1, step=9, kind="NonFiniteLoss")], 1.0)  # it came late
    assert made.unsound == -1
    made.found([stamped(found(1, step=3, kind="NonFiniteLoss"), 1)], 1.0)  # before its rank's own report
    assert made.unsound == 3
    [hang] = made.compared([found(1, step=4, kind="RankHung")])
    assert attempt_of(hang) == 1


@pytest.mark.parametrize("attempt", [-1, 2**31])
def test_no_rank_has_had_as_many_attempts(attempt):
    made = job(at(0, 7, attempt=attempt))
    assert (made.ranks, made.attempt) == ({}, 0)


def test_the_last_findings_are_kept_and_none_comes_back_as_new():
    made = job(at(0, 10**6), expected=1)
    for step in range(KEPT + 10):
        made.found([found(0, step)], 0.0)
        made.settle(0.0)
    assert len(made.settled) == KEPT
    made.found([found(0, 5)], 0.0)
    assert not made.settle(9.0)
    assert made.counts["NonFiniteGradient", "critical"] == KEPT + 10


def test_a_flood_does_not_wait_for_ranks_that_are_late():
    made = job(at(0, 0))
    made.found([found(0, step) for step in range(1, 3 * KEPT)], 0.0)
    made.settle(0.0)
    assert len(made.pending) <= KEPT
    assert len(made.settled) <= KEPT


def test_ranks_that_the_job_can_not_have_are_left_out():
    made = job(at(0, 1), at(16, 1), at(-1, 1))
    made.found([found(16), found(-1), replace(found(0), rank=None)], 0.0)
    assert list(made.ranks) == [0]
    assert not made.pending


def test_the_version_follows_states_and_findings_but_no_healthy_step():
    made = job(at(0, 1), at(1, 1))
    first = made.shape(0.0)
    made.heard([at(0, 2, loss=1.0), at(1, 2)], 1.0)
    assert made.shape(1.0) == first
    made.heard([at(0, 3, "held", reason="Hold")], 2.0)
    held = made.shape(2.0)
    assert held != first
    made.found([found(0, 3)], 2.0)
    made.settle(9.0)
    assert made.shape(2.0) != held


def test_a_pod_that_fell_silent_is_said_so_without_a_new_version_each_second():
    made = job(at(0, 1), at(1, 1, "ended", reason="done"))
    first = made.shape(0.0)
    assert made.shape(5.0) == first
    assert made.shape(8.0) == made.shape(12.0) != first
    reasons = [each.reason for each in made.report("v", Orders(), 12.4).ranks]
    assert reasons == ["silent for 12 s", "done"]


steps = st.integers(0, 3)
events = st.lists(st.tuples(st.integers(0, 2), steps, st.sampled_from([True, False, None])), max_size=12)


@given(events, st.randoms(use_true_random=False))
def test_saying_it_again_in_any_order_changes_nothing(events, random):
    once, again = job(expected=3), job(expected=3)
    said = [found(rank, step, local=local) for rank, step, local in dict.fromkeys(events)]
    said = list({(each.rank, each.step): each for each in said}.values())
    once.found(said, 0.0)
    twice = said * 2
    random.shuffle(twice)
    for each in twice:
        again.found([each], 0.0)
    for made in (once, again):
        made.settle(2.0)
    assert once.settled == again.settled
