"""What one can do on the node, beside the API: end a container's process by a signal it can't catch."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from support.kube import harness, run, until

OPERATOR = "app.kubernetes.io/name=stepwarden"  # its pods' label


def kill_container(pod, name=None):
    """SIGKILL the first process of a container: the named one, or the pod's only one."""
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    [status] = [s for s in statuses if name in (None, s["name"])]
    identity = status["containerID"].removeprefix("containerd://")
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("killing a container's process needs this machine to be the node")
    socket = harness("socket")
    run("ctr", "-a", socket, "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", identity)


def kill_operator(cluster):
    """SIGKILL its process, then delete its pod, as a crashed container is restarted ever more slowly."""
    for pod in cluster.items("pods", "-l", OPERATOR):
        if "running" in pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]:
            kill_container(pod)
        cluster("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0", "--wait=false")


@contextlib.contextmanager
def cut_off(pod):
    """Take a pod's link to all other pods down, and up again in the end."""
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("cutting a pod off needs this machine to be the node")
    socket = harness("socket")
    identity = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    tasks = run("ctr", "-a", socket, "-n", "k8s.io", "tasks", "ls")
    [pid] = [line.split()[1] for line in tasks.splitlines() if line.startswith(identity)]
    inside = run("nsenter", "-t", pid, "-n", "ip", "-o", "link", "show", "eth0")
    index = inside.split(": ")[1].removeprefix("eth0@if")
    [link] = [line.split(": ")[1].split("@")[0] for line in links() if line.startswith(f"{index}: ")]
    assert link.startswith("veth"), f"{link} is no pod's link: the node's own are left alone"
    run("ip", "link", "set", link, "down")
    try:
        yield
    finally:
        run("ip", "link", "set", link, "up")


def small_volume(pod, name):
    """
    Put a file system of 1 MiB where a pod's emptyDir is, and return its path on the node.

    That is before a container has the folder; the kubelet unmounts what it finds there with the pod.
    """
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("mounting into a pod's volume needs this machine to be the node")
    inside = f"/pods/{pod['metadata']['uid']}/volumes/"

    def folder():
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        volumes = [mount.split(inside)[0] + inside for mount in mounts if inside in mount]
        return next(
            filter(Path.is_dir, (Path(each, "kubernetes.io~empty-dir", name) for each in volumes)), None
        )

    found = until(f"the volume {name} of {pod['metadata']['name']}", folder)
    run("mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "none", str(found))
    return found


def fill(folder):
    """Write into a file of a folder until there is no room left."""
    with (folder / "full").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def links():
    """List the node's own interfaces, one a line."""
    return run("ip", "-o", "link").splitlines()
