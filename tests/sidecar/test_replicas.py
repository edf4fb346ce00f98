"""The hub puts the ranks' steps side by side: when it compares them, and what it says once."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.replica import Replica
from stepwarden.wire import Finding
from stepwarden_sidecar.replicas import PATIENCE, ROOM, Replicas

from .conftest import eventually

KIND = "GradientNotSynchronized"


def rank(number, count=0, digest="g", size=2, **more):
    norm = float(ord(digest[0]))
    fields = {"run": "r", "step": count, "optimizer": 0, "group": "0-1", "names": "n", "tensors": 4}
    return Replica(rank=number, count=count, digest=digest, norm=norm, size=size, **(fields | more))


def said(made, *records, now=0.0, gone=(), **more):
    made.take(records, now)
    return [(each.kind, each.step, each.ranks) for each in made.compare(gone, now, **more)]


def test_a_step_is_compared_once_all_ranks_are_through_it():
    made = Replicas(16)
    assert said(made, rank(0, digest="a")) == []
    assert said(made, rank(1, digest="b")) == [(KIND, 0, (0, 1))]
    assert (made.open, made.waiting) == ({}, 0)


def test_what_lasts_is_said_once_and_again_when_it_comes_back():
    made = Replicas(16)
    heard = []
    for count, other in enumerate("bbgbb"):
        heard += said(made, rank(0, count), rank(1, count, digest=other))
    assert [step for _, step, _ in heard] == [0, 3]


def test_ranks_that_lost_their_reduction_may_be_far_apart():
    made = Replicas(16)
    assert said(made, *(rank(0, count, digest="a") for count in range(3 * ROOM))) == []
    assert made.waiting <= ROOM
    assert said(made, rank(1, 0, digest="b"), now=0.1) == [(KIND, 0, (0, 1))]


def test_of_many_ranks_that_say_nothing_of_each_other_no_more_is_kept_than_there_is_room():
    made = Replicas(10**6)
    said(made, *(rank(number, 0, group=str(number)) for number in range(2 * ROOM)))
    assert made.waiting <= ROOM
    assert len(made.courses) < ROOM


def test_a_rank_that_lags_is_not_waited_for_for_ever():
    made = Replicas(16)
    four = {"size": 4, "group": "0-3"}
    assert said(made, *(rank(number, digest=str(number), **four) for number in range(3))) == []
    assert said(made, now=PATIENCE) == [(KIND, 0, (0, 1, 2))]
    assert said(made, rank(3, digest="3", **four), now=PATIENCE + 1) == []


@pytest.mark.parametrize("closing", [True, False])
def test_a_rank_that_ended_is_not_waited_for(closing):
    made = Replicas(16)
    three = {"size": 3, "group": "0-2"}
    said(made, *(rank(number, **three) for number in range(3)))
    late = (rank(0, 1, digest="a", **three), rank(1, 1, digest="b", **three))
    assert said(made, *late, gone=() if closing else (2,), closing=closing) == [(KIND, 1, (0, 1))]


def test_a_new_process_is_not_compared_with_the_last_words_of_the_one_before():
    made = Replicas(16)
    said(made, rank(0, 7, digest="old"))
    assert said(made, rank(1, 0, run="new"), rank(0, 0, run="new")) == []
    for count in range(1, 7):
        assert said(made, rank(1, count, run="new"), rank(0, count, run="new")) == []
    assert said(made, rank(1, 7, run="new")) == []
    assert said(made, rank(0, 7, run="new")) == []
    assert made.open == {}


def test_what_a_pod_says_again_is_passed_over():
    made = Replicas(16)
    step = (rank(0, digest="a"), rank(1, digest="b"))
    assert len(said(made, *step)) == 1
    assert said(made, *step) == []
    assert made.open == {}


def test_after_a_restart_nothing_is_said_again_until_the_ranks_agreed_once():
    made = Replicas(16)
    made.restore([Finding(kind=KIND, severity="critical", step=3, message="m")])
    assert said(made, rank(0, 4, digest="a"), rank(1, 4, digest="b")) == []
    assert said(made, rank(0, 5), rank(1, 5)) == []
    assert said(made, rank(0, 6, digest="a"), rank(1, 6, digest="b")) == [(KIND, 6, (0, 1))]


def test_replicas_that_part_by_their_gradients_are_said_to_since_then():
    made = Replicas(16)
    said(made, rank(0, 2, digest="a"), rank(1, 2, digest="b"))
    made.take([rank(0, 3, samples=(1.0, 2.0)), rank(1, 3, samples=(1.1, 2.1))], 0.0)
    [parted] = made.compare((), 0.0)
    assert (parted.kind, parted.step, parted.first_step) == ("ReplicasDiverged", 3, 2)


def test_replicas_by_hand_are_known_by_what_they_do():
    made = Replicas(16)
    hand = {"group": ""}
    for count in range(3):
        both = (rank(each, count, inputs=f"{each} {count}", **hand) for each in (0, 1))
        assert said(made, *both) == []
    assert said(made, rank(0, 3, digest="a", **hand), rank(1, 3, digest="b", **hand)) == [(KIND, 3, (0, 1))]


def test_ranks_without_a_group_that_never_agreed_are_let_be():
    made = Replicas(16)
    for count in range(9):
        assert said(made, rank(0, count, digest="a", group=""), rank(1, count, digest="b", group="")) == []


def test_sixty_four_ranks_cost_a_hub_little():
    """Twenty steps a second of each are 1,280 records: they must take a small part of that second."""
    made = Replicas(64)
    wide = {"size": 64, "group": "0-63", "samples": (0.5, 0.25), "inputs": "x", "own": 1.0, "used": 1.0}
    records = [rank(each, count, **wide) for count in range(20) for each in range(64)]
    began = time.process_time()
    for at in range(0, len(records), 16):
        assert said(made, *records[at : at + 16]) == []
    assert time.process_time() - began < 0.5


events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from("gab"), st.sampled_from("rs")),
    max_size=40,
)


@given(events, st.integers(1, 5))
def test_any_order_of_words_keeps_the_books(events, size):
    made = Replicas(3)
    for number, count, digest, run in events:
        made.take([rank(number, count, digest=digest, run=run, size=size)], 0.0)
        made.compare((), 0.0)
        assert made.waiting == sum(len(each.records) for each in made.open.values())
    made.compare((0, 1, 2, 3), PATIENCE, closing=True)


async def test_steps_of_two_pods_meet_in_the_hub(sidecar, agent):
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2", STEPWARDEN_POD="0")
    other = await sidecar("pod1", STEPWARDEN_RANKS="2", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    for each, digest in ((agent(hub, 0), "a"), (agent(other, 1), "b")):
        for count in range(3):
            each.send(rank(each.rank, count, digest=digest))
            each.takes(count)
    [finding] = await eventually(hub.found)
    assert (finding.kind, finding.severity, finding.step, finding.ranks) == (KIND, "critical", 0, (0, 1))


async def test_a_hub_that_was_killed_says_nothing_twice(sidecar, agent):
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2")
    both = (agent(hub, 0), agent(hub, 1))

    def step(count, *digests):
        for each, digest in zip(both, digests, strict=True):
            each.send(rank(each.rank, count, digest=digest))

    step(0, "a", "b")
    await eventually(hub.found)
    await hub.kill()
    await hub.start()
    step(1, "a", "b")
    step(2, "g", "g")
    step(3, "a", "b")
    found = await eventually(lambda: hub.found(2))
    assert [each.step for each in found] == [0, 3]
    lines = (hub.directory / "state" / "job.jsonl").read_text().splitlines()
    assert len(lines) == 2
