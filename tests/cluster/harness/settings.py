"""Where this cluster keeps its files, and the addresses that are its own."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepwarden"

NODE_NAME = "node1"
BRIDGE = "clbr0"
NETWORK = "test-cluster"
NODE_IP = "10.244.0.1"
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
API_PORT = 6443
ETCD_PORTS = {"node": (12479, 12480), "api": (12379, 12380)}  # one of each kind can be up at once
DNS_READY_PORT = 10181
PROXY_HEALTH_PORT = 10256
CNI_PLUGINS = Path("/usr/lib/cni")

EPOCH = "1970-01-01T00:00:00Z"
PAUSE_IMAGE = "cluster.test/pause:1"
HOST_IMAGE = "cluster.test/host:1"
BASE_IMAGE = "base.test/python:1"
BASE_PACKAGES = ("python3-venv", "ca-certificates")

LONGEST_DIR = 60  # below it lie Unix sockets, whose paths may have 107 characters


class ClusterError(Exception):
    """Something that the person at the keyboard can act on."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one cluster: `dir` is its state, `bin` the cached binaries of this go.mod."""

    dir: Path
    bin: Path
    prometheus: Path

    @property
    def run(self) -> Path:
        """All that lives only while the cluster is up."""
        return self.dir / "run"

    @property
    def logs(self) -> Path:
        """The components' logs: they stay after `down`."""
        return self.dir / "log"

    @property
    def images(self) -> Path:
        """Archives of the images that were made, imported at every `up`."""
        return self.dir / "images"

    @property
    def socket(self) -> Path:
        """containerd's."""
        return self.run / "containerd.sock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.run / "admin.kubeconfig"


def paths(directory: Path) -> Paths:
    """Find the folders of the cluster whose state is in a directory."""
    at = directory.expanduser().resolve()
    if len(str(at)) > LONGEST_DIR:
        raise ClusterError(
            f"{at}: too long for the sockets below it; give --dir one of at most 60 characters"
        )
    binaries = CACHE / "bin"
    return Paths(at, binaries / cluster_key(), binaries / f"prometheus-{prometheus_key()}")


def kubernetes_version() -> str:
    """Read the version that go.mod requires."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise ClusterError("go.mod requires no k8s.io/kubernetes")
    return found[1]


def linker_flags() -> str:
    """Put the flags from which Kubernetes takes the version that it reports."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": EPOCH,
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s", "-w", *(f"-X {p}.{k}={v}" for p in packages for k, v in values.items())])


def cluster_key() -> str:
    """Name the cache of the cluster's binaries by all that decides what they are."""
    digest = hashlib.sha256(linker_flags().encode())
    for path in sorted([SOURCE / "go.mod", SOURCE / "go.sum", *SOURCE.glob("cmd/*/*.go")]):
        digest.update(f"{path.relative_to(SOURCE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def prometheus_key() -> str:
    """Name the cache of Prometheus' binary likewise."""
    files = [SOURCE / "prometheus" / name for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
