"""The images of a cluster: kept as archives, imported when it is up, or loaded into one that exists."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path

from archives import fill_folder, write_image
from node import ctr
from processes import pid_of
from settings import BASE_IMAGE, BASE_PACKAGES, HOST_IMAGE, PAUSE_IMAGE, ClusterError, Paths
from shell import lock, run, timed

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WASTE = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")


def archive_of(at: Paths, name: str) -> Path:
    """Name the archive of an image."""
    return at.images / (urllib.parse.quote(name, safe="") + ".tar")


def import_all(at: Paths) -> None:
    """Import the two images that every cluster has, and those that `image` has made."""
    have = set(ctr(at, "images", "ls", "-q").split())
    made = {urllib.parse.unquote(path.stem): path for path in sorted(at.images.glob("*.tar"))}
    own = {PAUSE_IMAGE: at.bin / "images" / "pause.tar", HOST_IMAGE: at.bin / "images" / "host.tar"}
    for name, path in {**own, **made}.items():
        if name not in have and name != BASE_IMAGE:
            with timed(f"import {name}"):
                ctr(at, "images", "import", path)


def image(at: Paths, name: str, make: Callable[[Path], None]) -> Path:
    """Make an image's archive by `make(target)`, and give it to the cluster if one is there."""
    if ":" not in name.rpartition("/")[2]:
        raise ClusterError(f"{name}: name it with a tag other than latest, or the kubelet tries to pull it")
    with lock(at, "images"):
        target = archive_of(at, name)
        with timed(f"make {name}"):
            make(target)
        load(at, name, target)
        forget_others(at, name)
        return target


def forget_others(at: Paths, name: str) -> None:
    """Drop the older tags of an image: each is some 300 MB. Containers that run keep what they run from."""
    for path in at.images.glob(archive_of(at, f"{name.rpartition(':')[0]}:*").name.replace("%2A", "*")):
        other = urllib.parse.unquote(path.stem)
        if other != name:
            path.unlink()
            if pid_of(at, "containerd"):
                ctr(at, "images", "rm", other, check=False)


def load(at: Paths, name: str, target: Path) -> None:
    """Import an archive, or hand it to the command that loads images into somebody else's cluster."""
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        command = os.environ.get("STEPWARDEN_TEST_LOAD_IMAGE")
        if not command:
            hint = "set STEPWARDEN_TEST_LOAD_IMAGE, e.g. 'kind load image-archive {archive}'"
            raise ClusterError(f"{target} is made; {hint}")
        run([word.replace("{archive}", str(target)) for word in shlex.split(command)])
    elif pid_of(at, "containerd"):
        with timed(f"import {name}"):
            ctr(at, "images", "import", target)


def base(at: Paths) -> None:
    """Make the Debian base image unless it is there: by debootstrap, from apt's own mirror and release."""
    if archive_of(at, BASE_IMAGE).exists():
        return
    require_root("debootstrap")
    at.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=at.dir) as folder:
        rootfs = Path(folder) / "rootfs"
        with timed("debootstrap"):
            debootstrap(rootfs)
        for waste in WASTE:
            shutil.rmtree(rootfs / waste, ignore_errors=True)
            (rootfs / waste).mkdir(parents=True)
        config = {"Env": [f"PATH={SEARCH_PATH}"], "Cmd": ["/bin/sh"]}
        write_image(BASE_IMAGE, fill_folder(rootfs), config, archive_of(at, BASE_IMAGE))


def debootstrap(rootfs: Path) -> None:
    """Install the smallest Debian, and Python, into a folder."""
    codename = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    form = "$(RELEASE) $(REPO_URI)"
    targets = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).splitlines()
    mirrors = [line.split()[1] for line in targets if codename and line.split()[0] == codename[1]]
    if not codename or not mirrors:
        raise ClusterError("apt names no mirror for this release: apt-get update")
    packages = f"--include={','.join(BASE_PACKAGES)}"
    argv = ["debootstrap", "--variant=minbase", packages, codename[1], str(rootfs), mirrors[0]]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"debootstrap failed:\n{done.stdout[-2000:]}")


def require_root(command: str) -> None:
    """Raise where building an image can't work."""
    if not shutil.which(command):
        raise ClusterError(f"missing: apt-get install -y {command}")
    if os.geteuid() != 0:
        raise ClusterError(f"{command} needs root here")
