"""
A real single-node Kubernetes for tests, without Docker, systemd or image pulls.

The control plane, kubelet, kube-proxy, kubectl, CoreDNS, etcd and helm are built from the Go
modules that go.mod beside this file pins; containerd, runc and the CNI plugins are the
distribution's. Commands print their result (a path) on stdout and progress on stderr:

    export KUBECONFIG=$(python tests/cluster/harness up) PATH=$(python tests/cluster/harness build):$PATH

STEPWARDEN_TEST_KUBECONFIG=FILE names a cluster that exists already (kind, minikube): then `up`
only checks it, `down` leaves it alone, and `image` hands the archive that it made to the command
in STEPWARDEN_TEST_LOAD_IMAGE, in which {archive} stands for the file.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from binaries import build, build_prometheus
from builder import build_image
from down import down
from images import archive_of, image, load
from processes import log_tail, pid_of, recorded
from settings import CACHE, ClusterError, Paths, paths
from shell import answers, kubectl, lock, run, say
from up import require_builder, require_machine, up


def status(at: Paths) -> bool:
    """Print what runs; true if all of it does and the API and the node are ready."""
    names = recorded(at)
    if not names:
        print(f"down ({at.dir})")
        return False
    for name in names:
        pid = pid_of(at, name)
        print(f"{name:<26}{f'pid {pid}' if pid else 'ended'}")
    ready = answers(at, "get", "--raw", "/readyz")
    print(f"{'API':<26}{'ready' if ready else 'not ready'}")
    if ready and (at.run / "mode").read_text() == "node":
        print(kubectl(at, "get", "nodes", "-o", "wide").rstrip())
    print(f"KUBECONFIG={at.kubeconfig}\nbinaries: {at.bin}")
    return ready and all(pid_of(at, name) for name in names)


def external(kubeconfig: str, command: str) -> int:
    """Do up, down, status and preflight on a cluster that someone else runs."""
    if command == "down":
        say(f"{kubeconfig}: not this tool's cluster, left alone")
        return 0
    if not shutil.which("kubectl"):
        raise ClusterError("STEPWARDEN_TEST_KUBECONFIG is set, but there is no kubectl in PATH")
    run(["kubectl", "--kubeconfig", kubeconfig, "get", "--raw", "/readyz"])
    if command == "up":
        print(kubeconfig)
    elif command == "status":
        print(f"API ready\nKUBECONFIG={kubeconfig}")
    return 0


def logs(at: Paths, component: str | None, lines: int) -> None:
    """Print the components' logs, also after `down`."""
    for name in [component] if component else sorted(path.stem for path in at.logs.glob("*.log")):
        print(f"==> {name} <==\n{log_tail(at, name, lines)}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("harness", description=__doc__, formatter_class=form)
    default = CACHE / "cluster"
    parser.add_argument("--dir", type=Path, default=default, help="state directory (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the binaries unless cached; prints their folder")
    commands.add_parser(
        "preflight", help="say in one line what a cluster misses here; exit status 1 if anything"
    )
    which = commands.add_parser(
        "which", help="print the path of a binary that is built; nothing if it is not"
    )
    which.add_argument("binary")
    commands.add_parser("socket", help="print the path of containerd's socket")
    commands.add_parser("prometheus", help="build Prometheus unless cached; prints its path")
    start = commands.add_parser("up", help="start the cluster; prints the KUBECONFIG path")
    only = "etcd, API server and controller-manager on 127.0.0.1: no node, no root"
    start.add_argument("--api-only", action="store_true", help=only)
    start.add_argument("--max-pods", type=int, default=110)
    commands.add_parser("down", help="end it and remove all that it left in the system")
    commands.add_parser("status", help="what runs; exit status 1 unless all is well")
    make = commands.add_parser("image", help="build an image and import it; prints the archive's path")
    make.add_argument("name", help="with a tag other than latest")
    make.add_argument("dockerfile", type=Path)
    make.add_argument("--once", action="store_true", help="if it was made before, only import that")
    make.add_argument("--context", type=Path, help="build context (default: the Dockerfile's folder)")
    tail = commands.add_parser("logs", help="the components' logs")
    tail.add_argument("component", nargs="?", help="default: the last lines of each")
    tail.add_argument("-n", "--lines", type=int, default=20)
    return parser.parse_args()


def make_image(at: Paths, options: argparse.Namespace) -> Path:
    """Build the image that the command line names."""
    context, made = options.context or options.dockerfile.parent, archive_of(at, options.name)
    if options.once and made.exists():
        load(at, options.name, made)
        return made
    return image(at, options.name, partial(build_image, at, options.name, options.dockerfile, context))


def locked(what: str, at: Paths, make: Callable[[Paths], Path]) -> Path:
    """Make something that two commands must not make at once."""
    with lock(at, what):
        return make(at)


def which(at: Paths, binary: str) -> Path | None:
    """Find a binary that is built already."""
    path = at.bin / binary
    return path if path.exists() else None


def preflight() -> None:
    """Raise, with what is missing, where a cluster and its image can't be made."""
    require_machine("node")
    require_builder()


COMMANDS: Mapping[str, Callable[[Paths, argparse.Namespace], object]] = {
    "build": lambda at, _: locked("cluster", at, build),
    "prometheus": lambda at, _: locked("prometheus", at, build_prometheus),
    "preflight": lambda _at, _options: preflight(),
    "which": lambda at, options: which(at, options.binary),
    "socket": lambda at, _: at.socket,
    "up": lambda at, options: up(at, api_only=options.api_only, max_pods=options.max_pods),
    "down": lambda at, _: down(at),
    "status": lambda at, _: status(at),
    "image": make_image,
    "logs": lambda at, options: logs(at, options.component, options.lines),
}


def carry_out(options: argparse.Namespace) -> int:
    """Do one command, and print the path that is its result."""
    kubeconfig = os.environ.get("STEPWARDEN_TEST_KUBECONFIG")
    if kubeconfig and options.command in ("up", "down", "status", "preflight"):
        return external(kubeconfig, options.command)
    result = COMMANDS[options.command](paths(options.dir), options)
    if isinstance(result, Path):
        print(result)
    return 1 if result is False else 0


def main() -> int:
    """Carry out the command line; an error that one can act on is one sentence."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `status | head` is no error
    try:
        return carry_out(arguments())
    except ClusterError as error:
        say(f"harness: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
