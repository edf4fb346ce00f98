"""The job's hub dies with its container: the next pod's sidecar takes over, and the operator finds it."""

import time

from support.kube import until
from support.node import kill_container
from support.trainers import finish, loop_job

SIDECAR = "stepwarden-sidecar"


def leads(kube, pod):
    """Whether a pod's sidecar has become the hub, by its log."""
    lines = kube("logs", pod, "-c", SIDECAR).splitlines()
    roles = [line for line in lines if "is the hub" in line]
    return bool(roles) and f"pod {pod.split('-')[-2]} is the hub, in term" in roles[-1]


def restarts(kube, pod):
    statuses = kube.get("pod", pod)["status"]["initContainerStatuses"]
    return {one["name"]: one["restartCount"] for one in statuses}[SIDECAR]


def test_the_hold_and_the_findings_outlast_the_hub(kube):
    skip = [{"kinds": ["NonFiniteGradient"], "action": "Skip"}]
    kube.apply(*loop_job("loop", nodes=2, env={"BAD_STEP": 5}, onFinding=skip))
    kube.until_step("loop", 8)
    first, second = kube.pod_of("loop", 0), kube.pod_of("loop", 1)
    until("pod 0 is the hub", lambda: leads(kube, first), 120)
    until("the finding is in the status", lambda: kube.row("loop")["FINDINGS"] == "1", 120)
    kube.plugin("hold", "loop")
    kube.until_state("loop", "Held", 120)
    step = kube.row("loop")["STEP"]
    kill_container(kube.get("pod", first), SIDECAR)
    killed = time.monotonic()
    until("pod 1 is the hub", lambda: leads(kube, second), 120, lambda: kube("logs", second, "-c", SIDECAR))
    assert time.monotonic() - killed < 20  # about two: kubectl is asked for the log
    until("the sidecar is back", lambda: restarts(kube, first) == 1, 120)
    until("it follows", lambda: follows(kube, first), 120, lambda: kube("logs", first, "-c", SIDECAR))
    assert kube.row("loop")["STATE"] == "Held"
    assert kube.row("loop")["STEP"] == step
    kube.plugin("resume", "loop")
    kube.until_state("loop", "Running", 120)
    kube.until_step("loop", int(step) + 5, 120)
    assert kube.row("loop")["FINDINGS"] == "1"
    finish(kube, "loop")
    kube.until_state("loop", "Complete")
    assert kube.row("loop")["FINDINGS"] == "1"


def follows(kube, pod):
    """Whether a pod's sidecar has found another one that is the hub."""
    return "pod 1 is the hub, in term" in kube("logs", pod, "-c", SIDECAR)
