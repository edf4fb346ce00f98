"""Builds the control plane and Prometheus from the Go modules beside this file, once for each go.mod."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from archives import fill_host, fill_pause, write_image
from settings import HOST_IMAGE, PAUSE_IMAGE, SOURCE, ClusterError, Paths, linker_flags
from shell import say, timed


def build(at: Paths) -> Path:
    """Build the cluster's binaries unless they are there; return their folder."""
    if at.bin.is_dir():
        return at.bin
    say("building Kubernetes from its Go modules (some ten minutes the first time)")
    draft = new_folder(at.bin)
    try:
        go_install(SOURCE, draft, f"-ldflags={linker_flags()}", "tool", "./cmd/...")
        images = draft / "images"
        write_image(
            PAUSE_IMAGE, fill_pause(draft / "pause"), {"Entrypoint": ["/pause"]}, images / "pause.tar"
        )
        path = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
        write_image(HOST_IMAGE, fill_host, path, images / "host.tar")
        draft.rename(at.bin)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return at.bin


def build_prometheus(at: Paths) -> Path:
    """Build a Prometheus that discovers pods, which Debian's does not; return its path."""
    binary = at.prometheus / "prometheus"
    if binary.exists():
        return binary
    say("building Prometheus from its Go module (some minutes the first time)")
    draft = new_folder(at.prometheus)
    try:
        tags = "remove_all_sd,enable_kubernetes_sd"
        go_install(SOURCE / "prometheus", draft, "-tags", tags, "-ldflags=-s -w", "tool")
        draft.rename(at.prometheus)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return binary


def new_folder(target: Path) -> Path:
    """Make a folder beside the target that becomes it by a rename, so that no half build is ever found."""
    if not shutil.which("go"):
        raise ClusterError("no go command: install Go of the version in go.mod or newer")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".build-", dir=target.parent))
    folder.chmod(0o755)
    return folder


def go_install(source: Path, target: Path, *args: str) -> None:
    """Run `go install` there, the binaries going to the target."""
    argv = ["go", "install", "-trimpath", "-mod=readonly", *args]
    env = {**os.environ, "GOBIN": str(target), "CGO_ENABLED": "0", "GOWORK": "off"}
    with timed("go install"):
        if subprocess.run(argv, cwd=source, env=env, stdout=sys.stderr, check=False).returncode != 0:
            raise ClusterError("the build failed; see above")
