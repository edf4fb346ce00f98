"""How jobs end, and what keeps them from beginning: said where a person looks."""

import pytest
from support.kube import until
from support.trainers import CRASH, script_job, shell_job


def test_a_healthy_job_ends_complete_whatever_its_sidecars_exit_with(kube):
    kube.apply(shell_job("well", "sleep 1", nodes=2))
    row = kube.until_state("well", "Complete")
    assert row["FINDINGS"] == "0"
    until("the Event", lambda: ("Completed", 1) in kube.events("well"), 10)
    for pod in kube.items("pods", "-l", "stepwarden.dev/job=well"):
        sidecars = [c for c in pod["status"]["initContainerStatuses"] if c["name"] == "stepwarden-sidecar"]
        assert "terminated" in sidecars[0]["state"]
    assert kube.get("tj", "well")["status"]["completionTime"]


def test_a_crash_is_told_with_exit_code_rank_and_last_lines(kube):
    script = (
        'echo reading; if [ "$PET_NODE_RANK" = 1 ]; then echo the disk is full >&2; exit 3; fi; sleep 1000'
    )
    kube.apply(shell_job("crash", script, nodes=2))
    kube.until_state("crash", "Failed")
    failed = kube.condition("crash", "Failed")
    assert failed["reason"] == "RankFailed"
    assert "exit code 3" in failed["message"]
    assert "rank" in failed["message"]
    assert "the disk is full" in failed["message"]
    [finding] = kube.get("tj", "crash")["status"]["findings"]
    assert (finding["kind"], finding["rank"], finding["evidence"]["exit_code"]) == ("RankFailed", 1, 3)
    until("the Event", lambda: ("Failed", 1) in kube.events("crash"), 10)


def test_a_traceback_is_told_by_the_agent(kube):
    kube.apply(*script_job("raise", CRASH))
    kube.until_state("raise", "Failed")
    [finding] = kube.get("tj", "raise")["status"]["findings"]
    assert (finding["kind"], finding["rank"]) == ("RankFailed", 0)
    assert "ValueError: the data ends in the middle of a sample" in finding["evidence"]["traceback"]
    assert "the data ends in the middle of a sample" in kube.condition("raise", "Failed")["message"]


def no_image(_kube, job):
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.invalid/none:1"
    return job, ("ErrImagePull", "ImagePullBackOff"), "registry.invalid/none:1"


def no_room(_kube, job):
    resources = {"requests": {"cpu": "4000"}}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    return job, ("Unschedulable",), "Insufficient cpu"


def no_quota(kube, job):
    kube("create", "quota", "none", "--hard=pods=0")
    return job, ("FailedCreate",), "exceeded quota"


@pytest.mark.parametrize("obstacle", [no_image, no_room, no_quota])
def test_what_keeps_pods_from_running_is_a_condition_in_seconds(kube, obstacle):
    job, reasons, words = obstacle(kube, shell_job("stuck", "sleep 1000"))
    kube.apply(job)

    def shown():
        found = kube.condition("stuck", "PodsReady")
        return found if found.get("reason") in reasons else None

    found = until("the condition", shown, 120, lambda: kube.told("stuck"))
    assert found["status"] == "False"
    assert words in found["message"]
    assert kube.row("stuck")["STATE"] == "Pending"
