"""A job that is suspended and goes on begins a new run: what was acknowledged before does not count in it."""

import dataclasses

import pytest
from worlds import (
    CHILD,
    FAILED,
    HELD,
    NOW,
    PODS,
    RUNNING,
    after,
    changed,
    finding,
    of,
    report,
    settled,
    status,
)

from stepwarden.attempt import stamped
from stepwarden.wire import Instruction
from stepwarden_operator.actions import Create, DeleteJob, Instruct, PatchJob
from stepwarden_operator.observe import Exit, timestamp
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.training_job import Acknowledged


def begun_anew(*found, **job):
    """A job that was suspended for a finding at step 47, resumed, and runs for the second time."""
    child = dataclasses.replace(CHILD, suspend=True, suspended=True)
    suspended = changed(settled(HELD), suspend=True)
    gone = settled(dataclasses.replace(settled(suspended), child=child, pods=(), report=None))
    back = settled(changed(gone, suspend=False))
    hub = report("held", "held", step=12, findings=found)
    return changed(dataclasses.replace(back, child=CHILD, pods=PODS, report=hub), **job)


@pytest.mark.parametrize("finished", [False, True])
def test_pods_begin_anew_only_when_the_old_ones_are_gone(finished):
    child = dataclasses.replace(CHILD, suspend=True, suspended=True)
    ending = tuple(dataclasses.replace(pod, terminating=True, finished=finished) for pod in PODS)
    suspended = changed(settled(HELD), suspend=True)
    asked_back = changed(settled(dataclasses.replace(suspended, child=child, pods=ending)), suspend=False)
    assert PatchJob({"suspend": False}) not in reconcile(asked_back, NOW).actions
    assert (status(asked_back)["phase"], status(asked_back)["run"]) == ("Suspended", 0)
    gone = dataclasses.replace(settled(asked_back), pods=(), report=None)
    assert PatchJob({"suspend": False}) in reconcile(gone, NOW).actions
    assert (status(gone)["run"], status(gone)["findingsCount"]) == (1, 1)


@pytest.mark.parametrize("step", [12, 47])
def test_what_was_acknowledged_before_a_suspension_does_not_let_a_later_nan_pass(step):
    again = begun_anew(finding(step))
    assert status(again)["phase"] == "Held"
    assert status(again)["pause"]["step"] == step
    assert status(again)["findingsCount"] == 2
    assert "acknowledged" not in status(again)
    assert Instruct(Instruction(hold=True)) in reconcile(again, NOW).actions


def test_an_acknowledgement_counts_for_its_own_run_alone():
    stale = begun_anew(finding(12), acknowledged=Acknowledged(step=47))
    assert status(stale)["phase"] == "Held"
    meant = begun_anew(finding(12), acknowledged=Acknowledged(step=12, run=1))
    assert status(meant)["acknowledged"] == {"step": 12, "update": "skip", "run": 1}
    assert "pause" not in status(meant)


def test_an_acknowledgement_counts_for_its_own_attempt_alone():
    known = changed(settled(HELD), acknowledged=Acknowledged(step=47))
    hub = report("held", "held", step=12, findings=(finding(47), stamped(finding(12), 1)), acknowledged=47)
    again = dataclasses.replace(settled(known), report=hub)
    assert status(again)["phase"] == "Held"
    assert (status(again)["pause"]["step"], status(again)["pause"]["attempt"]) == (12, 1)
    assert status(again)["findingsCount"] == 2
    meant = changed(again, acknowledged=Acknowledged(step=12, attempt=1))
    assert status(meant)["acknowledged"] == {"step": 12, "attempt": 1, "update": "skip", "run": 0}
    assert Instruct(Instruction(attempt=1, acknowledged=12)) in reconcile(meant, NOW).actions
    assert "pause" not in status(meant)


DIED = Exit(code=137, reason="Error", log="")
KILLED = dataclasses.replace(PODS[0], terminating=True, finished=True, exit=DIED)
SPOILT = dataclasses.replace(CHILD, suspend=True, failed=timestamp(NOW), failed_reason="PodFailurePolicy")


@pytest.mark.parametrize("pods", [(), (KILLED,)])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_job_that_failed_by_its_own_suspension_has_not_failed(pods, resumed):
    """The Job controller may see a pod that was killed for a suspension before that pod is gone."""
    suspended = settled(dataclasses.replace(changed(RUNNING, suspend=True), pods=()))
    failed = changed(dataclasses.replace(suspended, child=SPOILT, pods=pods), suspend=not resumed)
    assert DeleteJob("j1") in reconcile(failed, NOW).actions
    assert after(failed, NOW).job.status["phase"] in ("Suspended", "Pending" if resumed else "Suspended")
    ended = settled(failed)
    assert ended.child == dataclasses.replace(CHILD, suspend=not resumed)
    assert ended.job.status["phase"] == ("Pending" if resumed else "Suspended")
    assert ended.job.status["run"] == int(resumed)


def test_a_job_that_was_suspended_is_made_anew_only_when_the_old_pods_are_gone():
    suspended = settled(dataclasses.replace(changed(RUNNING, suspend=True), pods=()))
    orphans = dataclasses.replace(changed(suspended, suspend=False), child=None, leftover=("tiny-0-x",))
    assert of(reconcile(orphans, NOW).actions, Create) == [Create(suspend=True)]
    assert status(orphans)["phase"] == "Suspended"


def test_a_job_that_has_failed_is_not_revived_by_a_suspension():
    failed = settled(FAILED)
    assert reconcile(dataclasses.replace(failed, child=SPOILT), NOW).actions == ()
