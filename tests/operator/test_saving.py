"""Before its pods go the training is asked for a checkpoint, for as long as the grace period says."""

import dataclasses

import pytest
from worlds import CHILD, HELD, NOW, RUNNING, after, changed, condition, finding, of, report, settled

from stepwarden.policy import Rule
from stepwarden.wire import Instruction
from stepwarden_operator.actions import DeleteJob, Instruct, PatchJob
from stepwarden_operator.checkpoint import Checkpoint
from stepwarden_operator.reconcile import reconcile

KEPT = Checkpoint(directory="/checkpoints", grace=60.0)
ASKED = changed(RUNNING, checkpoint=KEPT, suspend=True)
SUSPEND = PatchJob({"suspend": True})


def answered(observed, *saved):
    """The ranks hold, and so far have answered by these numbers."""
    held = report(*["held"] * len(saved), hold_at=50, save=1)
    ranks = tuple(dataclasses.replace(rank, saved=each) for rank, each in zip(held.ranks, saved, strict=True))
    return dataclasses.replace(observed, report=dataclasses.replace(held, ranks=ranks))


def test_the_ranks_are_held_together_and_asked_before_they_are_suspended():
    plan = reconcile(ASKED, NOW)
    assert of(plan.actions, Instruct) == [Instruct(Instruction(hold=True, save=1))]
    assert SUSPEND not in plan.actions
    assert plan.wake == NOW + 60
    asked = settled(ASKED)
    assert asked.job.status["saving"]["number"] == 1
    assert "0 of 2 ranks have saved" in condition(asked, "Saving")["message"]
    one = settled(answered(asked, 1, 0), NOW + 5)
    assert SUSPEND not in reconcile(one, NOW + 5).actions
    both = answered(one, 1, 1)
    assert SUSPEND in reconcile(both, NOW + 6).actions
    gone = settled(both, NOW + 6)
    assert "saving" not in gone.job.status


def test_whoever_does_not_save_in_time_is_suspended_all_the_same():
    asked = settled(answered(settled(ASKED), 1, 0), NOW + 1)
    assert SUSPEND not in reconcile(asked, NOW + 59).actions
    assert SUSPEND in reconcile(asked, NOW + 60).actions


def test_an_operator_that_was_killed_asks_no_second_time():
    asked = answered(settled(ASKED), 0, 0)
    unheard = dataclasses.replace(asked, report=None)
    assert SUSPEND not in reconcile(unheard, NOW + 30).actions
    assert reconcile(asked, NOW + 30).actions == () or not of(reconcile(asked, NOW + 30).actions, Instruct)
    assert SUSPEND in reconcile(unheard, NOW + 60).actions


def test_who_changes_their_mind_has_the_ranks_go_on():
    back = changed(answered(settled(ASKED), 0, 0), suspend=False)
    assert of(reconcile(back, NOW + 5).actions, Instruct)[0].instruction.hold is False
    assert "saving" not in settled(back, NOW + 5).job.status


@pytest.mark.parametrize(
    "observed",
    [
        changed(RUNNING, suspend=True),  # it names no folder
        dataclasses.replace(ASKED, report=None),  # nobody could be asked
        dataclasses.replace(ASKED, report=report("running", "running", step=-1)),  # nothing to save yet
        dataclasses.replace(ASKED, report=report("failed", "failed")),
    ],
)
def test_where_nothing_can_be_saved_nothing_is_waited_for(observed):
    assert SUSPEND in reconcile(observed, NOW).actions


def test_a_restart_is_preceded_by_it_where_the_ranks_live():
    rules = (Rule(severity="critical", action="Restart"),)
    poisoned = changed(HELD, rules=rules, checkpoint=KEPT)
    asked = settled(poisoned)
    assert asked.job.status["restarts"] == 0
    assert of(reconcile(poisoned, NOW).actions, Instruct) == [Instruct(Instruction(hold=True, save=1))]
    saved = answered(asked, 1, 1)
    saved = dataclasses.replace(saved, report=dataclasses.replace(saved.report, findings=(finding(),)))
    decided = after(saved, NOW + 5)
    assert decided.job.status["restarts"] == 1
    assert of(reconcile(decided, NOW + 5).actions, DeleteJob) == [DeleteJob(CHILD.uid)]


def test_ranks_that_hang_are_not_asked():
    rules = (Rule(severity="critical", action="Restart"),)
    told = report("running", "running", findings=[finding(kind="RankHung")])
    hung = dataclasses.replace(changed(RUNNING, rules=rules, checkpoint=KEPT), report=told)
    assert after(hung, NOW).job.status["restarts"] == 1
