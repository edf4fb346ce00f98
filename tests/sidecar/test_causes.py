from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden.wire import MAX_DATAGRAM, Finding, Orders, RankReport, to_line
from stepwarden_sidecar.causes import ENDED, ROOM, TOLD, WAIT, Causes
from stepwarden_sidecar.job import Job


def failed(rank, *, local=None, step=5, severity="critical", **evidence):
    facts = evidence if local is None else {"local": local, **evidence}
    return Finding(
        kind="RankFailed",
        severity=severity,
        step=step,
        rank=rank,
        ranks=(rank,),
        message=f"end {rank}",
        evidence=facts,
    )


def job(ranks=4):
    made = Job(ranks, ranks)
    made.heard((state(rank, "running") for rank in range(ranks)), 0.0)
    return made


def state(rank, word):
    return RankReport(rank=rank, pod=0, state=word, step=4, time=0.0)


def published(made, at, *findings):
    made.found(findings, at)
    return [(each.rank, each.severity, each.evidence.get("because")) for each in made.settle(at)]


@pytest.mark.parametrize("cause", [True, None])
def test_who_lost_a_peer_waits_for_that_peer_s_failure_however_the_two_arrive(cause):
    made = job()
    assert published(made, 0.0, failed(0, local=False)) == []
    assert published(made, 0.5) == []
    assert published(made, 0.6, failed(2, local=False), failed(1, local=cause)) == [
        (1, "critical", None),
        (0, "info", 1),
        (2, "info", 1),
    ]
    assert published(made, 0.7, failed(3, local=False)) == [(3, "info", 1)]
    [told] = made.causes.told
    assert told.rank == 1


@pytest.mark.parametrize(
    ("words", "local", "known"),
    [
        ("Timed out waiting 12000ms for recv operation to complete", False, {0}),
        ("Rank 1 failed to pass monitoredBarrier in 5000 ms: timing out", False, {0}),
        ("Connection closed by peer", False, set()),
        ("the data server: timeout", True, set()),
    ],
)
def test_who_waited_in_vain_is_known_until_the_cause_is(words, local, known):
    made = job()
    made.found([replace(failed(0, local=local), message=words)], 0.0)
    assert made.gave_up == known
    hang = replace(failed(1), kind="RankHung")
    made.compared([hang])
    [said] = made.settle(0.1)
    assert made.gave_up == set()
    assert said.evidence.get("because") == (None if local else 1)


def test_without_a_cause_a_lost_peer_is_said_as_it_is_and_explains_nobody_else():
    made = job()
    assert published(made, 0.0, failed(0, local=False), failed(2, local=False)) == []
    assert published(made, WAIT) == [(0, "critical", None), (2, "critical", None)]


def test_who_was_freed_names_what_it_was_told():
    made = job()
    assert published(made, 0.0, failed(0, local=False)) == []
    assert published(made, WAIT) == [(0, "critical", None)]
    assert published(made, 3.0, failed(2, local=False, because=0)) == [(2, "info", 0)]
    assert published(made, 3.0, failed(3, local=False, because=1)) == []


def test_a_rank_that_ended_by_its_own_word_may_still_turn_out_to_be_the_cause():
    made = job()
    made.heard([state(1, "ended")], 0.0)
    assert published(made, 0.0, failed(0, local=False)) == []
    assert published(made, ENDED - 0.1) == []
    assert published(made, ENDED - 0.1, failed(1, local=True)) == [(1, "critical", None), (0, "info", 1)]
    assert published(made, 9.0, failed(2, local=False, step=6)) == [(2, "info", 1)]


def test_who_lost_a_peer_that_ended_well_says_so():
    made = job()
    made.heard([state(1, "ended"), state(2, "ended")], 0.0)
    made.found([failed(0, local=False)], 0.0)
    [said] = made.settle(ENDED)
    assert (said.rank, said.evidence["ended"]) == (0, [1, 2])
    assert said.message.startswith("end 0; ranks 1 and 2 have ended before: let every rank take")


def test_two_faults_of_their_own_are_two_causes():
    made = job()
    assert published(made, 0.0, failed(0, local=True), failed(1, local=True)) == [
        (0, "critical", None),
        (1, "critical", None),
    ]
    assert [each.rank for each in made.causes.told] == [0, 1]


def test_a_kill_that_follows_a_failure_is_its_consequence():
    made = job()
    published(made, 0.0, failed(1, local=True))
    assert published(made, 0.1, failed(0)) == [(0, "info", 1)]


def test_a_thread_s_failure_is_told_and_explains_nobody():
    made = job()
    warned = failed(1, local=True, severity="warning", step=4)
    assert published(made, 0.0, warned) == [(1, "warning", None)]
    assert made.causes.told == (warned,)
    assert published(made, 0.1, failed(0)) == [(0, "critical", None)]


def test_a_hang_explains_those_that_were_freed_from_it():
    made = job()
    hung = replace(failed(3), kind="RankHung")
    assert made.compared([hung]) == [hung]
    made.found([failed(0, local=False)], 1.0)
    [freed] = made.settle(1.0)
    assert (freed.severity, freed.evidence["because"]) == ("info", 3)
    assert freed.message == "end 0, because rank 3 hangs"


def test_a_restarted_rank_begins_a_new_attempt():
    made = job()
    published(made, 0.0, failed(1, local=True, pid=10))
    made.heard([state(1, "failed")], 0.1)
    assert made.causes.told
    assert not made.begun_anew()
    made.heard([state(1, "running")], 0.2)
    assert made.causes.told == ()
    assert (made.begun_anew(), made.begun_anew()) == (True, False)
    assert published(made, 0.3, failed(1, local=True, pid=10)) == []
    assert published(made, 0.4, failed(1, local=True, pid=11)) == [(1, "critical", None)]


def test_the_first_cause_is_told_for_as_long_as_it_lasts():
    causes = Causes()
    for rank in range(10):
        causes.published([failed(rank, local=True)])
    assert [each.rank for each in causes.told] == [0, 7, 8, 9]
    assert len(causes.told) == TOLD


texts = st.text(st.sampled_from("a\u00e9\u6f22\U0001f600\n"), max_size=40)


@settings(deadline=None)  # a busy machine
@given(st.lists(texts, min_size=1, max_size=6), texts)
def test_orders_fit_a_datagram_and_keep_each_traceback_s_end(tracebacks, message):
    causes = Causes()
    for rank, text in enumerate(tracebacks):
        long = text * 600
        one = failed(rank, local=True, traceback=long + "END", tensors={"x": [long] * 50})
        causes.published([replace(one, message=message * 600)])
    assert len(to_line(Orders(told=causes.told))) <= ROOM < MAX_DATAGRAM
    assert all(each.evidence["traceback"].endswith("END") for each in causes.told)


def test_a_consequence_carries_little():
    made = job()
    published(made, 0.0, failed(1, local=True))
    made.found([failed(0, local=False, traceback="x" * 9000 + "END", exit_code=1)], 0.1)
    [one] = made.settle(0.1)
    assert one.evidence["exit_code"] == 1
    assert one.evidence["traceback"].endswith("END")
    assert len(to_line(one)) < 2000
