"""What the operator does about a job, by tables."""

import dataclasses

import pytest
from worlds import (
    CHILD,
    FAILED,
    HELD,
    HOLD,
    NOW,
    PODS,
    RUNNING,
    after,
    asked,
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
from stepwarden.wire import Instruction
from stepwarden_operator.actions import Announce, Create, Instruct, PatchJob, WriteStatus
from stepwarden_operator.events import event_name
from stepwarden_operator.observe import Observed, Refusal, timestamp
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.training_job import Acknowledged


def test_a_new_job_gets_its_children_then_a_status():
    actions = reconcile(Observed(job=asked()), NOW).actions
    assert [type(action) for action in actions] == [Create, WriteStatus]
    assert actions[1].patch["phase"] == "Pending"
    assert actions[1].patch["ranks"]["ready"] == "0/2"


def test_a_job_that_runs_shows_its_progress():
    found = status(RUNNING)
    assert found["phase"] == "Running"
    assert found["progress"] == {"step": 47, "stepsPerSecond": 3.0, "loss": 2.5}
    assert found["ranks"] == {"total": 2, "running": 2, "held": 0, "failed": 0, "ready": "2/2"}
    assert events(RUNNING) == ["Created", "Started"]


def test_a_loss_that_is_no_number_is_a_string():
    ranks = tuple(dataclasses.replace(rank, loss=float("nan")) for rank in RUNNING.report.ranks)
    observed = dataclasses.replace(RUNNING, report=dataclasses.replace(RUNNING.report, ranks=ranks))
    assert status(observed)["progress"]["loss"] == "NaN"


def test_progress_alone_is_written_only_when_it_is_due():
    known = settled(RUNNING)
    later = dataclasses.replace(known, report=report("running", "running", step=48), progress_due=False)
    assert reconcile(later, NOW).actions == ()
    [write] = reconcile(dataclasses.replace(later, progress_due=True), NOW).actions
    assert write == WriteStatus({"progress": {"step": 48}})


def test_a_nan_holds_the_job_and_says_so():
    found = status(HELD)
    assert found["phase"] == "Held"
    assert found["findingsCount"] == 1
    assert found["lastFinding"] == "NonFiniteGradient at step 47, rank 1"
    assert found["pause"]["action"] == "Hold"
    assert condition(HELD, "Held")["reason"] == "NonFiniteGradient"
    assert "kubectl stepwarden resume tiny" in condition(HELD, "Held")["message"]
    assert events(HELD) == ["Created", "FindingMade", "Started", "Held"]


def test_the_other_ranks_are_told_to_hold_with_the_one_that_does():
    observed = dataclasses.replace(HELD, report=report("held", "running", findings=[finding()]))
    assert of(reconcile(observed, NOW).actions, Instruct) == [Instruct(Instruction(hold=True))]
    assert status(observed)["phase"] == "Held"


@pytest.mark.parametrize("update", ["skip", "apply"])
def test_resume_releases_the_ranks_with_what_becomes_of_the_update(update):
    observed = changed(settled(HELD), acknowledged=Acknowledged(step=47, update=update))
    [instruct] = of(reconcile(observed, NOW).actions, Instruct)
    assert instruct.instruction == Instruction(hold=False, acknowledged=47, update=update)
    assert status(observed)["phase"] == "Held"
    going = dataclasses.replace(after(observed, NOW), report=report("running", "running", acknowledged=47))
    assert status(going)["phase"] == "Running"
    assert "pause" not in status(going)
    assert events(going) == ["Resumed"]


def test_an_acknowledgement_is_remembered_and_never_taken_back():
    observed = settled(changed(settled(HELD), acknowledged=Acknowledged(step=47)))
    forgotten = changed(observed, acknowledged=Acknowledged())
    assert status(forgotten)["acknowledged"] == {"step": 47, "update": "skip", "run": 0}


@pytest.mark.parametrize(
    ("then", "wanted"),
    [
        ("Skip", Instruct(Instruction(acknowledged=47, update="skip"))),
        ("Observe", Instruct(Instruction(acknowledged=47, update="apply"))),
        ("Suspend", PatchJob({"suspend": True})),
        ("Fail", PatchJob({"activeDeadlineSeconds": 1})),
    ],
)
def test_an_overdue_hold_does_what_comes_then(then, wanted):
    observed = settled(changed(HELD, rules=(dataclasses.replace(HOLD, timeout=60.0, then=then),)))
    assert reconcile(observed, NOW).wake == NOW + 60
    assert wanted not in reconcile(observed, NOW + 59).actions
    assert wanted in reconcile(observed, NOW + 60).actions
    settled(observed, NOW + 60)


def test_an_operator_that_has_just_started_takes_a_held_job_for_held():
    known = dataclasses.replace(settled(HELD), report=None)
    assert reconcile(known, NOW + 5).actions == ()


def test_events_are_not_told_again_by_a_later_operator():
    known = dataclasses.replace(settled(HELD), announced=frozenset())
    again = of(reconcile(known, NOW + 5).actions, Announce)
    assert {event_name(known.job, event) for event in again} <= settled(HELD).announced
    assert reconcile(known, NOW + 3600).actions == ()


def test_a_person_holds_and_lets_go():
    held = changed(RUNNING, hold=True)
    assert of(reconcile(held, NOW).actions, Instruct) == [Instruct(Instruction(hold=True))]
    assert status(held)["phase"] == "Running"
    stopped = dataclasses.replace(settled(held), report=report("held", "held", hold_at=50))
    assert condition(stopped, "Held")["reason"] == "Requested"
    free = changed(settled(stopped), hold=False)
    assert of(reconcile(free, NOW).actions, Instruct) == [Instruct(Instruction(hold=False))]


def test_suspend_deletes_the_pods_and_deals_with_what_was_found():
    observed = changed(settled(HELD), suspend=True)
    assert PatchJob({"suspend": True}) in reconcile(observed, NOW).actions
    child = dataclasses.replace(CHILD, suspend=True, suspended=True)
    gone = dataclasses.replace(settled(observed), child=child, pods=(), report=None)
    assert status(gone)["phase"] == "Suspended"
    assert status(gone)["ranks"]["ready"] == "0/2"
    assert condition(gone, "Held")["reason"] == "Suspended"
    back = changed(settled(gone), suspend=False)
    assert PatchJob({"suspend": False}) in reconcile(back, NOW).actions
    assert status(back)["phase"] == "Pending"
    assert "pause" not in status(back)


def test_what_the_hub_left_behind_is_known_although_nobody_asked_it():
    child = dataclasses.replace(CHILD, complete=timestamp(NOW))
    pods = (dataclasses.replace(PODS[0], finished=True, left=(finding(),)), PODS[1])
    done = dataclasses.replace(RUNNING, child=child, pods=pods, report=None)
    assert status(done)["findingsCount"] == 1
    assert "FindingMade" in events(done)


def test_a_job_that_ended_well_is_complete_and_keeps_its_findings():
    child = dataclasses.replace(CHILD, complete=timestamp(NOW))
    done = dataclasses.replace(settled(HELD), child=child)
    found = status(done)
    assert found["phase"] == "Complete"
    assert found["ranks"]["ready"] == "2/2"
    assert found["findingsCount"] == 1
    assert found["completionTime"] == timestamp(NOW)
    assert events(done)[-1] == "Completed"


def test_a_crash_is_told_with_exit_code_rank_and_last_lines():
    failed = condition(FAILED, "Failed")
    assert failed["reason"] == "RankFailed"
    for words in ("ranks 1", "exit code 3", "the disk is full"):
        assert words in failed["message"]
    [found] = status(FAILED)["findings"]
    assert (found["kind"], found["rank"], found["evidence"]["exit_code"]) == ("RankFailed", 1, 3)
    assert status(FAILED)["phase"] == "Failed"


def test_the_last_words_stay_when_the_pods_are_deleted():
    later = dataclasses.replace(settled(FAILED), pods=(), report=None)
    assert "the disk is full" in condition(later, "Failed")["message"]


def test_the_agents_word_on_a_crash_replaces_our_own():
    told = finding(kind="RankFailed", evidence={"traceback": "ValueError: no"})
    observed = dataclasses.replace(settled(FAILED), report=report("running", "failed", findings=[told]))
    [found] = status(observed)["findings"]
    assert found["evidence"] == {"traceback": "ValueError: no"}
    assert "it holds NaN" in condition(observed, "Failed")["message"]


def test_a_failure_waits_a_moment_for_the_pod_that_tells_why():
    early = dataclasses.replace(FAILED, pods=PODS)
    assert reconcile(early, NOW).wake == NOW + 2
    assert status(early)["phase"] == "Running"
    assert status(early, NOW + 2)["phase"] == "Failed"


def test_a_crashed_job_is_left_to_end_by_itself_for_a_while():
    observed = dataclasses.replace(
        RUNNING, report=report("running", "failed", findings=[finding(kind="RankFailed")])
    )
    known = settled(observed)
    assert of(reconcile(known, NOW + 9).actions, PatchJob) == []
    assert of(reconcile(known, NOW + 10).actions, PatchJob) == [PatchJob({"activeDeadlineSeconds": 1})]


def test_a_failure_that_the_policy_asked_for_names_the_finding():
    observed = settled(changed(HELD, rules=(Rule(action="Fail"),)))
    child = dataclasses.replace(observed.child, failed=timestamp(NOW), failed_reason="DeadlineExceeded")
    ended = dataclasses.replace(observed, child=child)
    assert status(ended, NOW + 2)["phase"] == "Failed"
    [failed] = [c for c in status(ended, NOW + 2)["conditions"] if c["type"] == "Failed"]
    assert failed["reason"] == "NonFiniteGradient"


@pytest.mark.parametrize(
    ("observed", "reason", "words"),
    [
        (
            {"pods": (dataclasses.replace(PODS[0], up=False, problem=("ErrImagePull", "no")),)},
            "ErrImagePull",
            "no",
        ),
        ({"pods": (), "pods_refused": "exceeded quota"}, "FailedCreate", "exceeded quota"),
        ({"pods": PODS[:1]}, "Starting", "1 of 2 pods run"),
        (
            {
                "child": None,
                "pods": (),
                "refusal": Refusal(generation=1, reason="InvalidTemplate", message="x"),
            },
            "InvalidTemplate",
            "see the condition Accepted",
        ),
    ],
)
def test_what_keeps_pods_from_running_is_a_condition(observed, reason, words):
    seen = dataclasses.replace(RUNNING, report=None, **observed)
    found = condition(seen, "PodsReady")
    assert (found["status"], found["reason"]) == ("False", reason)
    assert words in found["message"]
    assert status(seen)["phase"] == "Pending"


def test_a_refused_template_is_not_tried_again_until_it_changes():
    refusal = Refusal(generation=1, reason="InvalidTemplate", message="spec.template: Invalid value")
    observed = Observed(job=asked(), refusal=refusal)
    assert of(reconcile(observed, NOW).actions, Create) == []
    assert condition(observed, "Accepted")["message"] == "spec.template: Invalid value"
    assert of(reconcile(changed(observed, generation=2), NOW).actions, Create)


def test_a_job_that_has_ended_is_left_alone_when_its_child_goes():
    done = settled(dataclasses.replace(RUNNING, child=dataclasses.replace(CHILD, complete=timestamp(NOW))))
    assert reconcile(dataclasses.replace(done, child=None, pods=(), report=None), NOW).actions == ()


def test_only_the_last_findings_are_kept_and_all_are_counted():
    many = [finding(step) for step in range(30)]
    observed = settled(dataclasses.replace(HELD, report=report("held", "held", findings=many, hold_at=1)))
    assert observed.job.status["findingsCount"] == 30
    assert [found["step"] for found in observed.job.status["findings"]] == list(range(10, 30))
