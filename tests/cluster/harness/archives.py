"""Images as archives that containerd and buildah both read, written without a container engine."""

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from settings import EPOCH

FOLDERS = ("tmp", "proc", "sys", "dev", "etc", "usr", "bin", "sbin", "lib", "lib64", "root", "opt")
MORE_FOLDERS = ("home", "srv", "var", "run", "mnt")
USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/false\n"
GROUPS = "root:x:0:\nnogroup:x:65534:\n"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

Fill = Callable[[tarfile.TarFile], None]


def write_image(name: str, fill: Fill, config: Mapping[str, object], target: Path) -> None:
    """Write a one-layer image; `fill` adds the layer's files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent) as layer:
        with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            fill(archive)
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        body = image_config(digest, config)
        config_name, layer_name = hashlib.sha256(body).hexdigest() + ".json", f"{digest}/layer.tar"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]).encode()
        draft = target.with_suffix(".part")
        with tarfile.open(draft, "w") as archive:
            add(archive, config_name, body)
            add(archive, "manifest.json", manifest)
            info = tarfile.TarInfo(layer_name)
            info.size = layer.seek(0, os.SEEK_END)
            layer.seek(0)
            archive.addfile(info, layer)
        draft.replace(target)


def image_config(digest: str, config: Mapping[str, object]) -> bytes:
    """Put the image's description. Without a history buildah caches no layer over it."""
    machine = os.uname().machine
    return json.dumps(
        {
            "architecture": MACHINES.get(machine, machine),
            "os": "linux",
            "created": EPOCH,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": EPOCH, "created_by": "harness"}],
        }
    ).encode()


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file of this content."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def fill_folder(rootfs: Path) -> Fill:
    """Fill with a directory's content, owners and links as they are, without the top folder's name."""

    def fill(archive: tarfile.TarFile) -> None:
        for child in sorted(rootfs.iterdir()):
            archive.add(child, arcname=child.name)

    return fill


def fill_pause(binary: Path) -> Fill:
    """Fill with the one program that holds a pod's namespaces open."""
    return lambda archive: archive.add(binary, arcname="pause")


def fill_host(archive: tarfile.TarFile) -> None:
    """Fill with empty mount points: pods bring the node's /usr, /lib, ... in as hostPath volumes."""
    for name in FOLDERS + MORE_FOLDERS:
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(info)
    add(archive, "etc/passwd", USERS.encode())
    add(archive, "etc/group", GROUPS.encode())
