"""RankHung: who waits for whom, how long is too long at the job's own pace, and what is healthy."""

import dataclasses

import pytest
from pulsing import STACK, USERS, judge, rank, still, waiting

from stepwarden.probes.ranks import rank_hung

LIBRARY = '  File "/usr/lib/python3.11/{}.py", line 9, in wait\n'
EVENT = USERS + 2 * LIBRARY.format("threading")
QUEUE = USERS + LIBRARY.format("queue") + LIBRARY.format("threading")
REQUEST = USERS + LIBRARY.format("ssl")

ACQUIRES = USERS + "    self.guard.acquire(timeout=60)\n"
WITHIN = USERS + "    with self._lock:\n"
CLOCKS = USERS + "    with clock(), blocks.open('acquired'):\n"

BAD = {
    "an event that nobody sets": [waiting(0), still(1, "data", marks=("locked",), stack=EVENT)],
    "an empty queue": [waiting(0, 31.0), still(1, "data", 31.0, marks=("locked",), stack=QUEUE)],
    "a lock between two steps": [waiting(0), still(1, "data", marks=("locked",))],
    "a lock that C waits for": [waiting(0), still(1, "data", marks=("sleeping",), stack=ACQUIRES)],
    "a lock by its with": [waiting(0), still(1, "data", marks=("sleeping",), stack=WITHIN)],
    "sleeps in its forward": [still(0, "backward"), still(1, "forward", marks=("sleeping",))],
    "stands in its forward": [waiting(0), still(1, "forward")],
    "sleeps in a hook of its backward": [
        still(0, "backward", stack=STACK),
        still(1, "backward", stack=USERS, marks=("sleeping",)),
    ],
    "stopped": [waiting(0, 3.0), rank(1, "forward", silent=3.0)],
    "stopped while it waited itself": [waiting(0, 3.0), waiting(1, 0.1, silent=3.0)],
    "stopped between two steps": [waiting(0, 5.2), rank(1, silent=5.2)],
    "cut off": [waiting(0, 3.0), waiting(1, 3.0, silent=3.0, cut=True)],
    "stopped in the first steps": [
        waiting(0, 31.0, steps=1, median=None),
        rank(1, "forward", steps=1, silent=31.0),
    ],
    "reads for too long": [waiting(0, 31.0), still(1, "data", 31.0, marks=("loading",))],
    "works without an end": [waiting(0, 31.0), rank(1, "forward", unmoved=31.0)],
    "evaluates for too long": [waiting(0, 601.0), still(1, "data", 601.0, marks=("evaluating",))],
    "behind a barrier, for long": [waiting(0, 121.0, "barrier"), still(1, "data", 121.0)],
    "the others' devices spin behind the step": [
        rank(0, unmoved=3.0),
        still(1, "data", 3.0, marks=("locked",)),
    ],
    "the others' devices spin": [
        rank(0, "backward", unmoved=3.0),
        still(1, "data", 3.0, marks=("locked",)),
    ],
}


@pytest.mark.parametrize("seen", BAD.values(), ids=BAD)
def test_the_missing_rank_is_named(seen):
    verdict = judge(*seen)
    assert verdict.reason == "Missing"
    found = verdict.finding
    assert (found.kind, found.severity, found.rank, found.ranks, found.step) == (
        "RankHung",
        "critical",
        1,
        (1,),
        8,
    )
    assert (found.file, found.line) == ("/x/train.py", 30)
    assert [each["rank"] for each in found.evidence["waiting"]] == [0]


SLOW = {"median": 5.0, "spread": 0.1, "longest": 6.0}
HEALTHY = {
    "on time": [waiting(0, 1.9), still(1, "forward", 1.9)],
    "evaluates for 20 s": [waiting(0, 20.0), still(1, "data", 20.0)],
    "evaluates in a forward pass": [
        waiting(0, 100.0),
        rank(1, "forward", marks=("evaluating",), unmoved=99.0),
    ],
    "saves, and the others meet in a barrier": [waiting(0, 100.0, "barrier"), still(1, "data", 100.0)],
    "a queue that fills again": [waiting(0, 20.0), still(1, "data", 20.0, marks=("locked",), stack=QUEUE)],
    "an upload": [waiting(0, 20.0), still(1, "data", 20.0, marks=("locked",), stack=REQUEST)],
    "something that is no lock": [waiting(0), still(1, "data", marks=("sleeping",), stack=CLOCKS)],
    "saves": [waiting(0, 300.0), still(1, "data", 300.0, marks=("checkpointing",))],
    "compiles": [waiting(0, 300.0), rank(1, "forward", marks=("compiling",), unmoved=300.0)],
    "compiles and holds the interpreter": [
        waiting(0, 20.0),
        rank(1, "forward", marks=("compiling",), silent=20.0),
    ],
    "works for 20 s": [waiting(0, 20.0), rank(1, "forward", unmoved=20.0)],
    "works between two steps": [waiting(0, 300.0), rank(1, unmoved=300.0)],
    "a collection of garbage": [waiting(0, 4.0), rank(1, silent=4.0)],
    "the first steps": [
        waiting(0, 300.0, steps=2, median=9.0),
        still(1, "forward", 300.0, steps=2, median=9.0),
    ],
    "prepares the data for all": [
        waiting(0, 1000.0, "barrier", steps=0, median=None),
        rank(1, "starting", steps=0, median=None, unmoved=1000.0),
    ],
    "uploads, and the others have ended": [rank(0, unmoved=900.0), rank(1, state="ended")],
    "long steps": [waiting(0, 40.0, **SLOW), still(1, "forward", 40.0, **SLOW)],
    "a pause of these steps came before": [
        waiting(0, 20.0, longest=20.0),
        still(1, "forward", 20.0, longest=20.0),
    ],
    "after a hold": [waiting(0, 300.0, within=1.0), still(1, "forward", 300.0, within=1.0)],
    "all pause": [still(0, "data", 500.0), still(1, "data", 500.0)],
    "one transfer of all": [waiting(0, 20.0), waiting(1, 20.0)],
    "sends to who receives": [waiting(0, 20.0, "send", line=3), waiting(1, 20.0, "recv", line=4)],
    "one has just come": [waiting(0, 20.0), waiting(1, 0.1)],
    "has stood, and moves": [waiting(0, 20.0), still(1, "forward", 0.5)],
    "one works and one reads": [rank(0, unmoved=99.0), still(1, "data", 99.0, marks=("loading",))],
    "a broadcast from two lines": [waiting(0, 20.0, line=1), waiting(1, 20.0, line=2)],
    "one alone reads": [still(0, "data", 500.0)],
}


@pytest.mark.parametrize("seen", HEALTHY.values(), ids=HEALTHY)
def test_healthy_ranks_are_let_be(seen):
    assert judge(*seen).status == "ok"


@pytest.mark.parametrize("state", ["held", "failed"])
def test_who_waits_for_a_rank_that_is_held_or_failed_is_not_judged(state):
    verdict = judge(waiting(0, 300.0), rank(1, state=state))
    assert (verdict.status, verdict.reason) == ("unknown", "NotRunning")


def test_a_collective_that_timed_out_names_who_did_not_come():
    reads = still(1, "data", 5.0, marks=("loading",))
    ranks = [waiting(0, 5.0, state="failed"), reads, waiting(2, 4.0)]
    assert rank_hung.judge(ranks, rank_hung.DEFAULTS).status == "unknown"
    verdict = rank_hung.judge(ranks, rank_hung.DEFAULTS, gave_up={0})
    assert (verdict.reason, verdict.finding.rank) == ("Missing", 1)
    assert "rank 1 keeps rank 0 waiting for 5.0 s in all_reduce" in verdict.finding.message


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([waiting(0, 5.0), waiting(1, 5.0)], id="all-have-come"),
        pytest.param([rank(0), still(1, "data")], id="nobody-is-known-to-have-waited"),
    ],
)
def test_a_collective_that_timed_out_of_which_no_more_is_known_blames_nobody(ranks):
    assert rank_hung.judge(ranks, rank_hung.DEFAULTS, gave_up={0}).status == "ok"


def test_without_a_pulse_nothing_is_known():
    assert judge().status == "unknown"
    assert judge(waiting(0, 300.0), expected=2).status == "unknown"
    assert judge(rank(0, silent=9.0), rank(1)).status == "unknown"


def test_collectives_that_do_not_match_are_named_with_their_places():
    verdict = judge(waiting(0), waiting(1, 2.2, "barrier", line=40))
    found = verdict.finding
    assert (verdict.reason, found.rank, found.ranks) == ("Apart", None, (0, 1))
    assert "rank 0 in all_reduce (train.py:30, its collective number 41)" in found.message
    assert "rank 1 in barrier (train.py:40, its collective number 41)" in found.message


def test_a_collective_of_all_that_does_not_end_is_told_later():
    verdict = judge(waiting(0, 31.0), waiting(1, 30.5))
    assert (verdict.reason, verdict.finding.rank) == ("AllWait", None)
    assert "network" in verdict.finding.message
    verdict = judge(waiting(0, 31.0, line=1), waiting(1, 30.5, line=2))
    assert verdict.reason == "Apart"


def test_ranks_that_wait_for_one_that_ended_are_told():
    early = judge(waiting(0), rank(1, state="ended", silent=4.0))
    assert early.status == "unknown"  # its exit code may say that it has failed
    verdict = judge(waiting(0), rank(1, state="ended", silent=30.0))
    assert (verdict.reason, verdict.finding.rank) == ("Ended", 1)
    assert judge(waiting(0, 1.9), rank(1, state="ended")).status != "bad"


def test_the_one_rank_of_a_job_is_given_more_time():
    assert judge(still(0, "forward", 29.0), expected=1).status == "ok"
    verdict = judge(still(0, "forward", 31.0), expected=1)
    assert (verdict.reason, verdict.finding.rank) == ("Stopped", 0)
    assert judge(still(0, "data", 601.0)).status == "ok"
    assert judge(still(0, "data", 1801.0)).status == "bad"
    assert judge(still(0, "forward", 500.0, marks=("compiling",))).status == "ok"


def test_nobody_moves_for_ten_minutes():
    verdict = judge(still(0, "data", 601.0), still(1, "data", 602.0))
    assert (verdict.reason, verdict.finding.rank, verdict.finding.ranks) == ("Stopped", None, (0, 1))


def test_of_many_ranks_those_that_are_missing_are_blamed_and_those_on_their_way_are_not():
    ranks = [waiting(number, 3.0) for number in range(60)]
    ranks[7] = still(7, "forward", 2.9, stack="s" * 9000)
    ranks[9] = still(9, "forward", 2.9)
    ranks[11] = rank(11, "forward", unmoved=0.2)
    found = judge(*ranks, expected=60).finding
    assert (found.rank, found.ranks) == (7, (7, 9))
    assert len(found.evidence["waiting"]) == 16
    assert len(found.evidence["stacks"]["7"]) == 4000


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (
            still(1, "data", marks=("locked",)),
            "it waits in the code between two steps (train.py:30) for a lock",
        ),
        (still(1, "forward", marks=("sleeping",)), "it sleeps in the forward pass (train.py:30), for 2.5 s"),
        (rank(1, "forward", silent=3.0), "it has said nothing for 3.0 s"),
        (rank(1, "forward", silent=3.0, cut=True), "network"),
    ],
)
def test_the_sentence_says_who_where_and_what_to_look_at(missing, said):
    message = judge(waiting(0), missing).finding.message
    assert message.startswith(
        "rank 1 keeps rank 0 waiting for 2.5 s in all_reduce (train.py:30, its collective"
    )
    assert said in message


def test_the_limit_can_be_set():
    assert judge(waiting(0, 3.5), still(1, "forward", 3.5), seconds=4.0).status == "ok"
    assert judge(waiting(0, 1.2), still(1, "forward", 1.2), seconds=1.0).status == "bad"


def test_a_rank_as_told_has_no_words_that_json_does_not_know():
    seen = dataclasses.replace(waiting(0), pulse=dataclasses.replace(waiting(0).pulse, waiting=float("inf")))
    assert judge(seen, still(1, "forward")).status == "ok"
