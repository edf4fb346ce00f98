"""A restart: decided once, whole, bounded, and never of a job that a person holds or suspends."""

import dataclasses

import pytest
from worlds import (
    CHILD,
    DEAD,
    FAILED,
    HELD,
    NOW,
    PODS,
    RUNNING,
    after,
    changed,
    condition,
    events,
    finding,
    of,
    report,
    settled,
    status,
)

from stepwarden.policy import Rule
from stepwarden.restarts import Restarts, exit_code
from stepwarden_operator.actions import Create, DeleteJob, Instruct, PatchJob
from stepwarden_operator.observe import Exit, timestamp
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.training_job import read_training_job

RESTART = Rule(kinds=("RankFailed", "NonFiniteGradient"), severity="critical", action="Restart")
CRASHED = changed(FAILED, rules=(RESTART,))
POISONED = changed(HELD, rules=(RESTART,))
LATER = NOW + 10.0


def gone(observed):
    """The world after the old Job and its pods are deleted."""
    return dataclasses.replace(observed, child=None, pods=(), report=None)


def crashed_again(observed):
    """The new pods have come, and one of them failed as the first did."""
    child = dataclasses.replace(observed.child, failed=timestamp(NOW), failed_reason="PodFailurePolicy")
    return dataclasses.replace(observed, child=child, pods=(PODS[0], DEAD))


@pytest.mark.parametrize("observed", [CRASHED, POISONED])
def test_the_whole_job_is_deleted_and_made_anew_once(observed):
    decided = after(observed, NOW)
    found = decided.job.status
    assert (found["phase"], found["restarts"], found["run"]) == ("Restarting", 1, 1)
    assert found["restartsBy"] == [{"rule": 0, "reason": found["lastRestart"]["reason"], "count": 1}]
    assert of(reconcile(observed, NOW).actions, DeleteJob) == []  # it is counted before anything is deleted
    assert reconcile(observed, NOW).wake == NOW
    assert of(reconcile(decided, NOW).actions, DeleteJob) == [DeleteJob("j1")]
    deleted = settled(decided)
    assert deleted.child is None
    assert reconcile(deleted, NOW).wake == LATER
    assert of(reconcile(deleted, LATER).actions, Create) == [Create(suspend=False, restarts=1)]
    anew = settled(deleted, LATER)
    assert anew.child.restarts == 1
    assert anew.job.status["phase"] == "Pending"
    assert anew.job.status["restarts"] == 1
    assert len(anew.job.status["findings"]) == 1  # of the run before, and it asks for nothing any more
    assert events(deleted, LATER) == []
    assert events(dataclasses.replace(anew, announced=frozenset()), LATER)[0] == "Restarted"


def test_while_it_waits_it_says_for_what():
    decided = settled(after(CRASHED, NOW))
    found = condition(decided, "Restarting")
    assert (found["status"], found["reason"]) == ("True", "RankFailed")
    assert "restart 1 of 3: rank 1 in pod tiny-1-x ended with exit code 3" in found["message"]
    assert f"not before {timestamp(LATER)}" in found["message"]
    anew = settled(decided, LATER)
    assert condition(anew, "Restarting")["status"] == "False"


def test_no_process_of_the_old_pods_may_write_beside_the_new_ones():
    waits = dataclasses.replace(gone(after(CRASHED, NOW)), leftover=("tiny-0-x",))
    assert of(reconcile(waits, LATER + 60).actions, Create) == []
    assert "waits for tiny-0-x to end" in condition(waits, "Restarting")["message"]


@pytest.mark.parametrize(("restarts", "seconds"), [(0, 10), (1, 20), (4, 160), (5, 300), (60, 300)])
def test_the_wait_doubles(restarts, seconds):
    observed = changed(CRASHED, restarts=Restarts(most=100), status={"restarts": restarts})
    child = dataclasses.replace(observed.child, restarts=restarts)
    found = after(dataclasses.replace(observed, child=child), NOW).job.status
    assert found["lastRestart"]["notBefore"] == timestamp(NOW + seconds)


def test_a_job_that_fails_in_every_run_is_restarted_so_often_and_then_fails():
    observed = changed(CRASHED, restarts=Restarts(most=2, backoff=0.0))
    for restarts in (1, 2):
        observed = settled(after(observed, NOW))
        assert observed.job.status["restarts"] == restarts
        observed = crashed_again(observed)
    found = status(observed)
    assert (found["phase"], found["restarts"], found["run"]) == ("Failed", 2, 2)
    assert found["findingsCount"] == 3
    failed = condition(observed, "Failed")
    assert failed["reason"] == "RankFailed"
    assert "not restarted: restarted 2 of 2 times (maxRestarts)" in failed["message"]
    assert "the disk is full" in failed["message"]


def test_times_bounds_one_rule_alone():
    rules = (dataclasses.replace(RESTART, kinds=("RankFailed",), times=1), RESTART)
    done = [{"rule": 0, "reason": "RankFailed", "count": 1}]
    told = {"restarts": 1, "restartsBy": done, "run": 1}
    child = dataclasses.replace(FAILED.child, restarts=1)
    spent = changed(dataclasses.replace(CRASHED, child=child), rules=rules, status=told)
    assert "restarted 1 of 1 times by this rule" in condition(spent, "Failed")["message"]
    child = dataclasses.replace(CHILD, restarts=1)
    other = changed(dataclasses.replace(POISONED, child=child), rules=rules, status=told)
    assert after(other, NOW).job.status["restartsBy"] == [
        *done,
        {"rule": 1, "reason": "NonFiniteGradient", "count": 1},
    ]


def test_a_live_job_whose_restarts_are_used_up_is_ended_with_the_reason():
    spent = changed(POISONED, restarts=Restarts(most=0))
    assert PatchJob({"activeDeadlineSeconds": 1}) in reconcile(spent, NOW).actions
    known = settled(spent)
    child = dataclasses.replace(known.child, failed=timestamp(NOW), failed_reason="DeadlineExceeded")
    ended = settled(dataclasses.replace(known, child=child), NOW + 2)
    [failed] = [each for each in ended.job.status["conditions"] if each["type"] == "Failed"]
    assert failed["reason"] == "NonFiniteGradient"
    assert "not restarted: restarted 0 of 0 times" in failed["message"]


@pytest.mark.parametrize(
    ("code", "retryable", "restarts"),
    [(3, (), 0), (3, (3,), 1), (127, (), 0), (128, (), 1), (137, (), 1), (255, (), 1)],
)
def test_an_exit_code_may_be_permanent(code, retryable, restarts):
    dead = dataclasses.replace(DEAD, exit=Exit(code=code, reason="Error", log=""))
    wanted = Restarts(policy="ExitCode", retryable=frozenset(retryable))
    observed = changed(dataclasses.replace(CRASHED, pods=(PODS[0], dead)), restarts=wanted)
    assert after(observed, NOW).job.status["restarts"] == restarts
    if not restarts:
        assert f"exit code {code} is permanent" in condition(observed, "Failed")["message"]


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ({"signal": "SIGKILL", "exit_code": -9}, 137),
        ({"signal": 11}, 139),
        ({"exit_code": -15}, 143),
        ({"exit_code": 42}, 42),
        ({"traceback": "ValueError: no"}, 1),
        ({}, None),
    ],
)
def test_the_ranks_own_exit_code_counts(evidence, code):
    assert exit_code(finding(kind="RankFailed", evidence=evidence)) == code


def test_a_person_who_holds_the_job_lets_it_go_first():
    held = changed(CRASHED, hold=True)
    assert status(held)["phase"] == "Restarting"
    assert status(held)["restarts"] == 0
    assert "the restart waits while spec.hold is true" in condition(held, "Restarting")["message"].lower()
    assert after(changed(settled(held), hold=False), NOW).job.status["restarts"] == 1


def test_a_person_who_suspends_starts_it_anew_already():
    waiting = settled(after(CRASHED, NOW))
    away = settled(changed(waiting, suspend=True), LATER)
    assert away.child == dataclasses.replace(CHILD, restarts=1, suspend=True)
    assert away.job.status["phase"] == "Suspended"
    back = settled(changed(away, suspend=False), LATER)
    assert (back.job.status["phase"], back.job.status["restarts"]) == ("Pending", 1)


def test_a_crash_is_left_to_end_by_itself_before_its_restart():
    told = report("running", "failed", findings=[finding(kind="RankFailed")])
    observed = settled(dataclasses.replace(changed(RUNNING, rules=(RESTART,)), report=told))
    assert observed.job.status["restarts"] == 0
    assert after(observed, NOW + 10).job.status["restarts"] == 1


def test_a_hold_that_nobody_answers_may_restart():
    rule = Rule(severity="critical", action="Hold", timeout=60.0, then="Restart")
    observed = settled(changed(HELD, rules=(rule,)))
    assert after(observed, NOW + 59).job.status["restarts"] == 0
    assert after(observed, NOW + 60).job.status["restarts"] == 1
    assert after(changed(CRASHED, rules=(rule,)), NOW).job.status["restarts"] == 1  # nothing to hold any more


def test_the_old_runs_last_words_are_not_the_new_ones():
    decided = after(POISONED, NOW)
    late = dataclasses.replace(decided, pods=(dataclasses.replace(PODS[0], left=(finding(48),)), PODS[1]))
    found = after(late, NOW).job.status
    assert found["findingsCount"] == 2
    assert of(reconcile(late, NOW).actions, Instruct) == []
    assert "pause" not in found


def test_a_job_that_has_failed_is_not_restarted_when_the_bound_is_raised():
    failed = settled(changed(CRASHED, restarts=Restarts(most=0)))
    assert reconcile(changed(failed, restarts=Restarts(most=9)), NOW).actions == ()


@pytest.mark.parametrize(
    ("spec", "action"),
    [({}, "Fail"), ({"maxRestarts": 2}, "Restart"), ({"maxRestarts": 0}, "Fail")],
)
def test_who_gives_max_restarts_alone_wants_a_crashed_job_restarted(spec, action):
    template = {"spec": {"containers": [{"name": "trainer"}]}}
    body = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"template": template, **spec}}
    assert read_training_job(body).rules[0].action == action
