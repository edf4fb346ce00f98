"""Builds an image from a Dockerfile with buildah, without a daemon and without pulling."""

import os
import subprocess
import sys
from pathlib import Path

from down import unmount
from images import archive_of, base, require_root
from settings import BASE_IMAGE, ClusterError, Paths
from shell import run

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


def build_image(at: Paths, name: str, dockerfile: Path, context: Path, target: Path) -> None:
    """Build over the Debian base. RUN steps see the host's CA bundle, pip configuration and network."""
    require_root("buildah")
    base(at)
    store = [f"--root={at.dir}/buildah", f"--runroot={at.dir}/buildah-run", "--storage-driver=overlay"]
    pull_base(at, store)
    argv = [
        *("buildah", *store, "build", "--isolation=chroot", "--network=host", "--layers", "--pull-never"),
        *("--format=docker", f"--file={dockerfile}", f"--tag={name}", f"--build-arg=BASE_IMAGE={BASE_IMAGE}"),
        *(f"--volume={host}:{inside}:ro" for host, inside in host_files()),
        str(context),
    ]
    at.images.mkdir(exist_ok=True)
    draft = target.with_suffix(".part")
    draft.unlink(missing_ok=True)
    try:
        if subprocess.run(argv, stdout=sys.stderr, check=False).returncode != 0:
            raise ClusterError("buildah failed; see above")
        run(["buildah", *store, "push", "--quiet", name, f"docker-archive:{draft}:{name}"])
    finally:
        run(["buildah", *store, "rm", "--all"], check=False)  # what a failed build leaves
        unmount(at.dir / "buildah")
    draft.replace(target)


def host_files() -> list[tuple[Path, str]]:
    """Find what a RUN step needs of the host to reach a registry: mounted, not copied into the image."""
    pip = Path(os.environ.get("PIP_CONFIG_FILE", "/etc/pip.conf"))
    files = ((BUNDLE, str(BUNDLE)), (pip, "/etc/pip.conf"))
    return [(host.resolve(), inside) for host, inside in files if host.is_file()]


def pull_base(at: Paths, store: list[str]) -> None:
    """Hand the base image to buildah, again if it was remade."""
    archive = archive_of(at, BASE_IMAGE)
    stamp = archive.with_suffix(".in-buildah")
    if stamp.exists() and stamp.stat().st_mtime >= archive.stat().st_mtime:
        return
    run(["buildah", *store, "pull", "--quiet", f"docker-archive:{archive}"])
    stamp.touch()
