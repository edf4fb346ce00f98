"""The sidecar is a witness, not a part of the training: it may die, and it may never have been there."""

import re

from support.kube import until
from support.node import kill_container
from support.trainers import LOOP, finish, loop_job

SYSTEM = "stepwarden-system"


def findings_told(kube, pod):
    """Ask a sidecar how many findings it knows."""
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{pod}:8475/proxy/metrics"
    done = kube.tries("get", "--raw", path)
    return re.findall(
        r"^stepwarden_findings_total\{[^}]*kind=\"(\w+)\"[^}]*\} (\S+)", done.stdout, re.MULTILINE
    )


def containers(kube, pod):
    status = kube.get("pod", pod)["status"]
    found = status["initContainerStatuses"] + status["containerStatuses"]
    return {one["name"]: one for one in found}


def test_a_killed_sidecar_comes_back_and_knows_what_was_found(kube):
    kube.apply(*loop_job("loop", env={"BAD_STEP": 5}, onFinding=[{"action": "Skip"}]))
    kube.until_step("loop", 8)
    pod = kube.pod_of("loop")
    known = [("NonFiniteGradient", "1.0")]
    until("the finding", lambda: findings_told(kube, pod) == known, 120)
    kill_container(kube.get("pod", pod), "stepwarden-sidecar")
    until("it is back", lambda: containers(kube, pod)["stepwarden-sidecar"]["restartCount"] == 1, 120)
    until("it knows", lambda: findings_told(kube, pod) == known, 120, lambda: kube.told("loop"))
    kube.until_step("loop", int(kube.row("loop")["STEP"]) + 20)
    steps = [int(step) for step in re.findall(r"step (\d+)", kube("logs", pod, "-c", "trainer"))]
    assert steps == list(range(len(steps)))
    assert containers(kube, pod)["trainer"]["restartCount"] == 0
    finish(kube, "loop")
    row = kube.until_state("loop", "Complete")
    assert row["FINDINGS"] == "1"


def bare_pod(image):
    """Put a pod with the agent in it, and no sidecar beside it."""
    job, script = loop_job("bare", env={"STEPS": 10, "BAD_STEP": 5})
    spec = job["spec"]["template"]["spec"]
    trainer = spec["containers"][0]
    trainer["env"] += [
        {"name": "PET_NODE_RANK", "value": "0"},
        {"name": "PET_NNODES", "value": "1"},
        {"name": "MASTER_ADDR", "value": "127.0.0.1"},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "PYTHONPATH", "value": "/opt/stepwarden"},
        {"name": "STEPWARDEN_DIR", "value": "/run/stepwarden"},
    ]
    trainer["volumeMounts"] += [{"name": "agent", "mountPath": "/opt/stepwarden"}]
    init = {
        "name": "agent",
        "image": image,
        "command": ["python", "-m", "stepwarden.inject", "/opt/stepwarden"],
        "volumeMounts": [{"name": "agent", "mountPath": "/opt/stepwarden"}],
    }
    spec |= {"restartPolicy": "Never", "initContainers": [init]}
    spec["volumes"] += [{"name": "agent", "emptyDir": {}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}, script


def test_an_agent_without_a_sidecar_lets_the_training_go_on(cluster, kube):
    assert "register_hook" in LOOP
    [deployment] = cluster.items("deployments", "-l", "app.kubernetes.io/name=stepwarden")
    kube.apply(*bare_pod(deployment["spec"]["template"]["spec"]["containers"][0]["image"]))

    def over():
        return kube.get("pod", "bare")["status"]["phase"] in ("Succeeded", "Failed")

    until("the pod ends", over, 90, lambda: kube("describe", "pod", "bare"))
    log = kube("logs", "bare")
    assert kube.get("pod", "bare")["status"]["phase"] == "Succeeded", log
    assert "rank 0 end parameters" in log
    assert "stepwarden: " in log
    assert "NonFiniteGradient" in log
