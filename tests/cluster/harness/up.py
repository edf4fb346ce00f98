"""Starts what does not run yet, and waits until pods can run."""

import os
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from binaries import build
from control_plane import LOOPBACK, apiserver, controller_manager, coredns, etcd, kube_proxy, scheduler
from images import import_all
from network import INTERFACE, make_bridge
from node import containerd, containerd_answers, kubelet
from pki import make_pki
from processes import require_alive, start
from settings import (
    BRIDGE,
    CNI_PLUGINS,
    DNS_READY_PORT,
    NODE_IP,
    NODE_NAME,
    PROXY_HEALTH_PORT,
    ClusterError,
    Paths,
)
from shell import answers, http_ok, lock, run, say, timed, wait_for

NODE_COMMANDS = {  # command -> Debian package
    "containerd": "containerd",
    "runc": "runc",
    "ctr": "containerd",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "mount": "mount",
    "openssl": "openssl",
}
FORWARDING = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def up(at: Paths, *, api_only: bool, max_pods: int) -> Path:
    """Bring the cluster up; return the administrator's kubeconfig."""
    with lock(at):
        build(at)
        kind, host = ("api", LOOPBACK) if api_only else ("node", NODE_IP)
        claim(at, kind)
        begin = time.monotonic()
        if not api_only:
            allow_forwarding()
            make_bridge()
        with timed("certificates"):
            make_pki(at, host)
        start(at, etcd(at, kind))
        start(at, apiserver(at, host))
        if not api_only:
            start_containerd(at)
        with timed("kube-apiserver /readyz"):
            ready = partial(answers, at, "get", "--raw", "/readyz")
            wait_for("kube-apiserver", ready, 120, partial(require_alive, at))
        start(at, controller_manager(at))
        if not api_only:
            start_node(at, max_pods)
        with timed("default ServiceAccount"):
            ready = partial(answers, at, "get", "serviceaccount", "default")
            wait_for("controller-manager", ready, 60, partial(require_alive, at))
        if not api_only:
            wait_for_node(at)
        say(f"  {'up':<28}{time.monotonic() - begin:7.2f} s")
        return at.kubeconfig


def claim(at: Paths, wanted: str) -> None:
    """Make the state directory this kind of cluster's, unless it is the other kind's."""
    mode = at.run / "mode"
    if mode.exists() and mode.read_text() != wanted:
        raise ClusterError(f"a cluster of kind {mode.read_text()} is up in {at.dir}; run `down` first")
    require_machine(wanted)
    if wanted == "node" and not mode.exists():
        require_no_other()
    if not mode.exists():
        shutil.rmtree(at.logs, ignore_errors=True)
    at.run.mkdir(mode=0o755, exist_ok=True)
    mode.write_text(wanted)


def require_machine(kind: str) -> None:
    """Raise, with everything that is missing at once, where this machine can't run such a cluster."""
    if kind == "node" and os.geteuid() != 0:
        raise ClusterError("a node needs root (only `up --api-only` does not)")
    require_packages(NODE_COMMANDS if kind == "node" else {"openssl": "openssl"})
    if kind == "node" and not FORWARDING.exists():
        raise ClusterError("the kernel has no bridge netfilter: modprobe br_netfilter")


def require_builder() -> None:
    """Raise where the binaries or the project's image can't be made."""
    if not shutil.which("go"):
        raise ClusterError("no Go (1.25 or newer) to build Kubernetes with")
    require_packages({"buildah": "buildah", "debootstrap": "debootstrap"})


def require_packages(commands: Mapping[str, str]) -> None:
    """Raise with the packages whose commands are not here."""
    missing = {package for command, package in commands.items() if not shutil.which(command)}
    if "ip" in commands and not (CNI_PLUGINS / "bridge").exists():
        missing.add("containernetworking-plugins")
    if missing:
        raise ClusterError(f"missing: apt-get install -y {' '.join(sorted(missing))}")


def require_no_other() -> None:
    """Raise where another cluster uses this machine's addresses."""
    if "KUBE-SERVICES" in run(["iptables-save", "-t", "nat"]):
        raise ClusterError("another kube-proxy's KUBE-SERVICES chain is in iptables: end that cluster first")
    if INTERFACE.exists():
        raise ClusterError(f"interface {BRIDGE} exists; if no other --dir uses it: ip link del {BRIDGE}")


def allow_forwarding() -> None:
    """Let the kernel pass packets between pods, through iptables, where Services are."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    FORWARDING.write_text("1")


def start_containerd(at: Paths) -> None:
    """Start it, and give it the images."""
    with timed("containerd"):
        start(at, containerd(at))
        wait_for("containerd", partial(containerd_answers, at), 30, partial(require_alive, at))
    import_all(at)


def start_node(at: Paths, max_pods: int) -> None:
    """Start what schedules and runs pods."""
    for component in (scheduler(at), kubelet(at, max_pods), coredns(at)):
        start(at, component)


def wait_for_node(at: Paths) -> None:
    """Wait until the node is Ready, Services are routed and names are found."""
    status = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    alive = partial(require_alive, at)
    with timed("node Ready"):
        ready = partial(answers, at, "get", "node", NODE_NAME, "-o", status, expect="True")
        wait_for("kubelet", ready, 120, alive)
    start(at, kube_proxy(at))
    with timed("kube-proxy, CoreDNS"):
        wait_for("kube-proxy", partial(http_ok, f"127.0.0.1:{PROXY_HEALTH_PORT}", "/healthz"), 60, alive)
        wait_for("coredns", partial(http_ok, f"{NODE_IP}:{DNS_READY_PORT}", "/ready"), 60, alive)
