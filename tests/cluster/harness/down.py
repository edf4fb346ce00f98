"""Ends the cluster, and removes all that it left in the system."""

import contextlib
import os
import re
import shutil
import signal
import time
from pathlib import Path

from network import remove_network
from processes import descendants, pid_of, pids, recorded, send
from settings import NETWORK, ClusterError, Paths
from shell import lock, run, say, timed, wait_for


def down(at: Paths) -> None:
    """End this cluster's own processes and containers; logs, binaries and images stay."""
    with lock(at):
        mode = at.run / "mode"
        if not mode.exists():
            say("nothing is up")
            return
        node = mode.read_text() == "node"
        if node and os.geteuid() != 0:
            raise ClusterError("this cluster has a node: `down` needs root")
        with timed("processes"):
            end_components(at)
            wait_for("containers", lambda: end_containers(at), 30)
        if node:
            with timed("mounts, network, cgroups"):
                unmount(at.run)
                remove_network()
                remove_traces(at)
        with timed("files"):
            shutil.rmtree(at.run)


def end_components(at: Paths) -> None:
    """SIGTERM to all, the kubelet first so that it restarts nothing; SIGKILL to what stays."""
    names = sorted(recorded(at), key=lambda name: name != "kubelet")
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        for name in names:
            if pid := pid_of(at, name):
                send(pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end and any(pid_of(at, name) for name in names):
            time.sleep(0.05)
    if left := [name for name in names if pid_of(at, name)]:
        raise ClusterError(f"these do not end: {', '.join(left)}")


def end_containers(at: Paths) -> bool:
    """Kill what the shims hold; true once none is left. A shim adopts all that its containers start."""
    shims = find_shims(at)
    for pid in [*descendants(shims), *shims]:
        send(pid, signal.SIGKILL)
    return not shims


def find_shims(at: Paths) -> list[int]:
    """Find containerd's shims: they are known by the socket that they were given, which is ours alone."""
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and str(at.socket).encode() in words:
                found.append(pid)
    return found


def mount_points(below: Path) -> list[str]:
    """Find mount points at or below a folder, the latest mounted first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4])
        if point == str(below) or point.startswith(f"{below}/"):
            points.append(point)
    return points[::-1]


def unmount(below: Path) -> None:
    """
    Unmount all at or below a folder.

    Callers delete nothing before that has succeeded: a bind mount leads out of the state directory.
    """
    for flags in ([], ["-l"]):
        points = mount_points(below)
        for i in range(0, len(points), 200):
            run(["umount", *flags, *points[i : i + 200]], check=False)
    if left := mount_points(below):
        raise ClusterError(f"cannot unmount {', '.join(left[:5])}; nothing below {below} was deleted")


def remove_traces(at: Paths) -> None:
    """Remove what kubelet, containerd and CNI keep at fixed places outside the state directory."""
    results, device_plugins = Path("/var/lib/cni/results"), Path("/var/lib/kubelet/device-plugins")
    for task in at.run.glob("containerd-state/io.containerd.runtime.v2.task/k8s.io/*"):
        (results / f"cni-loopback-{task.name}-lo").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a container that shares its pod's shim names no socket
            Path((task / "address").read_text().strip().removeprefix("unix://")).unlink()
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{at.run}/"):
            link.unlink()
    for result in results.glob(f"{NETWORK}-*"):
        result.unlink()
    for name in ("kubelet.sock", "kubelet_internal_checkpoint"):
        (device_plugins / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # only if they are empty
        device_plugins.rmdir()
        device_plugins.parent.rmdir()
    remove_cgroups()


def remove_cgroups() -> None:
    """Remove the kubelet's empty cgroups, of version 2 or 1."""
    root = Path("/sys/fs/cgroup")
    for top in [*root.glob("kubepods"), *root.glob("*/kubepods")]:
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
