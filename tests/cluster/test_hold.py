"""A person's hold and suspension: by the manifest, and by the plugin."""

import json
import re

from support.kube import until
from support.trainers import finish, loop_job, shell_job


def patch(kube, name, **spec):
    kube("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def last_steps(kube, name):
    """Read from each rank's log which step it began last."""
    logs = (kube("logs", pod, "-c", "trainer", "--tail=1") for pod in sorted(kube.pods(name)))
    return [int(re.search(r"step (\d+)", log)[1]) for log in logs]


def test_hold_in_place_and_go_on(kube):
    kube.apply(*loop_job("loop", nodes=2))
    kube.until_step("loop", 3)
    before = kube.pods("loop")
    holds = (lambda: patch(kube, "loop", hold=True), lambda: kube.plugin("hold", "loop"))
    releases = (lambda: patch(kube, "loop", hold=False), lambda: kube.plugin("resume", "loop"))
    for hold, release in zip(holds, releases, strict=True):
        hold()
        row = kube.until_state("loop", "Held", 120)
        assert row["RANKS"] == "2/2"
        first, second = last_steps(kube, "loop")
        assert first == second
        assert kube.condition("loop", "Held")["reason"] == "Requested"
        release()
        kube.until_state("loop", "Running", 120)
        kube.until_step("loop", first + 5, 120)
    assert kube.pods("loop") == before
    assert [reason for reason, count in kube.events("loop") if count == 1].count("Held") == 2
    finish(kube, "loop")
    kube.until_state("loop", "Complete")
    assert kube.row("loop")["FINDINGS"] == "0"


def test_suspend_deletes_the_pods_and_unsuspend_makes_new_ones(kube):
    kube.apply(shell_job("nap", "sleep 1000", nodes=2))
    kube.until_state("nap", "Running")
    before = kube.pods("nap")
    patch(kube, "nap", suspend=True)
    kube.until_state("nap", "Suspended", 120)
    until("the pods are gone", lambda: not kube.pods("nap"), 120, lambda: kube.told("nap"))
    assert kube.condition("nap", "Suspended")["status"] == "True"
    patch(kube, "nap", suspend=False)
    kube.until_state("nap", "Running")
    assert set(kube.pods("nap").values()).isdisjoint(before.values())
    [job] = kube.items("jobs")  # made anew, where the Job controller took a suspended pod for a failed one
    assert job["metadata"]["name"] == "nap"
    assert not kube.condition("nap", "Failed")


def test_a_nan_after_a_suspension_is_held_like_the_first(kube):
    hold = [{"kinds": ["NonFiniteGradient"], "action": "Hold"}]
    kube.apply(*loop_job("again", env={"BAD_STEP": 20}, onFinding=hold))
    kube.until_state("again", "Held")
    assert "step 20 " in kube.plugin("resume", "again")
    kube.until_state("again", "Running", 120)
    for suspend, state in ((True, "Suspended"), (False, "Held")):
        patch(kube, "again", suspend=suspend)
        kube.until_state("again", state)
    row = kube.row("again")
    assert (row["STEP"], row["FINDINGS"]) == ("20", "2")
    kube.plugin("resume", "again")
    kube.until_state("again", "Running", 120)
    kube.until_step("again", 25, 120)
    finish(kube, "again")
    kube.until_state("again", "Complete")
