"""What a job's status, condition and Events say of ranks that failed: the cause, not what followed."""

import dataclasses

import pytest
from worlds import FAILED, NOW, changed, condition, finding, of, report, status

from stepwarden_operator.actions import Announce
from stepwarden_operator.findings import merge, outranked, traceback_end
from stepwarden_operator.manifests.env import trainer_env
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.training_job import failure_grace

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in step\nValueError: no\n'


def crash(rank, message, severity="critical", **evidence):
    found = finding(kind="RankFailed", evidence=evidence)
    return dataclasses.replace(found, rank=rank, message=message, severity=severity)


CAUSE = crash(1, "ValueError: no (exit code 1)", traceback=TRACE)
FOLLOWED = crash(0, "closed by peer", severity="info", because=1)


def failed(*findings):
    return dataclasses.replace(FAILED, report=report("failed", "failed", findings=findings))


@pytest.mark.parametrize("findings", [(CAUSE, FOLLOWED), (FOLLOWED, CAUSE)])
def test_status_condition_and_event_carry_the_cause_with_its_traceback(findings):
    observed = failed(*findings)
    [found] = status(observed)["findings"]
    assert (found["rank"], found["severity"]) == (1, "critical")
    assert found["evidence"]["traceback"] == TRACE
    said = condition(observed, "Failed")["message"]
    assert said.startswith("rank 1 failed: ValueError: no (exit code 1); pod ")
    assert f"; its traceback ends:\n{TRACE.rstrip()}; its last lines:\nthe disk is full" in said
    told = of(reconcile(observed, NOW).actions, Announce)
    [event] = [each for each in told if each.reason == "FindingMade"]
    assert event.message.endswith(f"ValueError: no (exit code 1)\n{TRACE.rstrip()}")


def test_the_rank_that_failed_first_stays_the_one_of_its_step():
    other = crash(0, "another")
    assert merge((), (CAUSE, other)) == (CAUSE,)
    assert merge((CAUSE,), (other, CAUSE)) == (CAUSE,)
    thread = crash(0, "a thread", severity="warning")
    assert merge((thread,), (CAUSE,)) == (CAUSE,)
    assert not outranked(CAUSE, None)


def test_a_thread_s_failure_is_not_the_job_s():
    thread = crash(0, "a thread", severity="warning")
    assert "thread" not in condition(failed(thread), "Failed")["message"]


@pytest.mark.parametrize(
    ("characters", "kept"), [(0, ""), (14, ""), (15, "ValueError: no"), (1000, TRACE.rstrip())]
)
def test_a_traceback_is_cut_between_lines(characters, kept):
    assert traceback_end(CAUSE, characters) == kept


def test_a_failure_without_a_traceback_has_no_end_of_one():
    assert traceback_end(FOLLOWED, 1000) == ""


def test_the_grace_period_is_read_and_told_to_the_ranks():
    assert failure_grace({}) == 2.0
    assert failure_grace({"failureGracePeriod": "1m30s"}) == 90.0
    with pytest.raises(ValueError, match="not a duration"):
        failure_grace({"failureGracePeriod": "soon"})
    job = changed(FAILED, failure_grace=5.0).job
    told = {variable["name"]: variable.get("value") for variable in trainer_env(job, ())}
    assert told["STEPWARDEN_FAILURE_GRACE"] == "5.0"
