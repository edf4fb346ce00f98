"""What one can do on the node, beside the API: end a container's process by a signal it can't catch."""

import os

import pytest
from support.kube import harness, run


def kill_container(pod, name=None):
    """SIGKILL the first process of a container: the named one, or the pod's only one."""
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    [status] = [s for s in statuses if name in (None, s["name"])]
    identity = status["containerID"].removeprefix("containerd://")
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("killing a container's process needs this machine to be the node")
    socket = harness("socket")
    run("ctr", "-a", socket, "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", identity)
