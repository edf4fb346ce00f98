"""The volumes of a pod as folders of this machine, and paths below their mounts rewritten to them."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwarden.cli.failure import UsageError
from stepwarden.cli.fields import field, mappings
from stepwarden.cli.manifest import Manifest, Mount

HERE = ("configMap", "emptyDir", "hostPath", "persistentVolumeClaim")


def place(manifest: Manifest, report: Path, scratch: Path) -> dict[str, Path]:
    """
    Make the mounted volumes, and return the folder of each.

    A ConfigMap and a claim live in the report's folder, where they can be looked at
    afterwards; an emptyDir is the pod's own and ends with it. Raises `UsageError`.
    """
    return {
        name: make(name, manifest, report, scratch) for name in sorted({m.volume for m in manifest.mounts})
    }


def make(name: str, manifest: Manifest, report: Path, scratch: Path) -> Path:
    """Make one volume."""
    volume = manifest.volumes.get(name)
    if volume is None:
        message = f"volume {name!r} is mounted, but not among the pod's volumes"
        raise UsageError(message)
    where = f"volume {name!r}"
    match kind(volume, where):
        case "configMap":
            return config_map(field(volume, "configMap", where, {}), manifest, report / "volumes" / name)
        case "hostPath":
            return Path(field(field(volume, "hostPath", where, {}), "path", where, "/"))
        case "persistentVolumeClaim":
            claim = field(field(volume, "persistentVolumeClaim", where, {}), "claimName", where, name)
            folder = report / "volumes" / Path(claim).name
        case _:
            folder = scratch / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kind(volume: Mapping[str, Any], where: str) -> str:
    """Return what a volume is."""
    found = next((each for each in HERE if each in volume), None)
    if found is None:
        given = next((key for key in volume if key != "name"), "nothing")
        message = f"{where} is a {given}: on this machine there are only {', '.join(HERE)}"
        raise UsageError(message)
    return found


def config_map(source: Mapping[str, Any], manifest: Manifest, folder: Path) -> Path:
    """Write the files of a ConfigMap that is in the same file."""
    name = field(source, "name", "configMap", "")
    if name not in manifest.config_maps:
        message = f"ConfigMap {name!r} is mounted, but not in the same file: add it as another document"
        raise UsageError(message)
    files = contents(manifest.config_maps[name], name)
    for item in mappings(source, "items", "configMap") or [{"key": key, "path": key} for key in files]:
        key, path = field(item, "key", "items", ""), Path(field(item, "path", "items", ""))
        if key not in files or path.is_absolute() or ".." in path.parts:
            message = f"ConfigMap {name!r} has no key {key!r}, or can't put it at {str(path)!r}"
            raise UsageError(message)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files[key])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def contents(document: Mapping[str, Any], name: str) -> dict[str, bytes]:
    """Return the files of a ConfigMap."""
    texts: dict[str, Any] = field(document, "data", f"ConfigMap {name!r}", {})
    coded: dict[str, Any] = field(document, "binaryData", f"ConfigMap {name!r}", {})
    try:
        return {key: field(texts, key, f"ConfigMap {name!r}", "").encode() for key in texts} | {
            key: base64.b64decode(field(coded, key, f"ConfigMap {name!r}", ""), validate=True)
            for key in coded
        }
    except binascii.Error as error:
        message = f"ConfigMap {name!r}: binaryData is not base64: {error}"
        raise UsageError(message) from error


def paths(mounts: Iterable[Mount], folders: Mapping[str, Path]) -> dict[str, Path]:
    """Return where each mount's path is on this machine."""
    return {mount.path: folders[mount.volume] / mount.sub_path for mount in mounts}


def rewrite(text: str, mapping: Mapping[str, Path]) -> str:
    """Put this machine's folders for the mounts' paths; the longest first, and only where a name ends."""
    if not mapping:
        return text
    longest = sorted(mapping, key=len, reverse=True)
    pattern = rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])"
    return re.sub(pattern, lambda found: str(mapping[found[1]]), text)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put a container's variables for `$(NAME)`, as Kubernetes does; `$$(NAME)` stays."""

    def one(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        return variables.get(found[1], found[0])

    return re.sub(r"\$?\$\(([A-Za-z_][\w.-]*)\)", one, text)


def said(mounts: Sequence[Mount], manifest: Manifest, mapping: Mapping[str, Path]) -> list[str]:
    """Return a line for each mount."""
    return [f"{m.path} is {mapping[m.path]} ({what(manifest.volumes[m.volume])})" for m in mounts]


def what(volume: Mapping[str, Any]) -> str:
    """Say what a volume is, for a person."""
    given = kind(volume, "volume")
    if given == "emptyDir":
        return "emptyDir, one for each pod"
    names = [volume[given].get(key) for key in ("name", "claimName")] if volume[given] else []
    return " ".join([given, *filter(None, names)])
