"""A job that is suspended and goes on begins a new run: what was acknowledged before does not count in it."""

import dataclasses

import pytest
from worlds import CHILD, HELD, NOW, PODS, changed, finding, report, settled, status

from stepwarden.wire import Instruction
from stepwarden_operator.actions import Instruct, PatchJob
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
