"""From what is to run to the processes that run it. A group is one node: a torchrun, or one rank."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwarden.cli.arguments import Options
from stepwarden.cli.manifest import Manifest
from stepwarden.cli.volumes import expand, rewrite
from stepwarden.wire import ENV_CHECKPOINTS, ENV_RANK

PYTHONS = frozenset({"python", "python3", Path(sys.executable).name})
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One node's processes: what is started, and what its environment has beside this process' own."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    directory: str | None = None


def of_script(options: Options, port: int) -> list[Group]:
    """Return the groups of a script: python for one rank, torchrun for more, one of them for each node."""
    script = ("-m", *options.command) if options.module else options.command
    if options.nproc * options.nnodes == 1:
        return [Group(command=(sys.executable, *script), env={ENV_RANK: "0"})]
    if options.nnodes == 1:
        nproc = ("--standalone", "--nproc-per-node", str(options.nproc))
        return [Group(command=(*TORCHRUN, *nproc, *script), env={})]
    return [
        Group(command=(*TORCHRUN, *script), env=rendezvous(node, options.nnodes, options.nproc, port))
        for node in range(options.nnodes)
    ]


def of_manifest(
    manifest: Manifest, procs: int, port: int, mappings: Sequence[Mapping[str, Path]]
) -> list[Group]:
    """Return the groups of a manifest, one for each pod; `mappings` are each pod's own paths."""
    return [pod(manifest, node, procs, port, mapping) for node, mapping in enumerate(mappings)]


def pod(manifest: Manifest, node: int, procs: int, port: int, mapping: Mapping[str, Path]) -> Group:
    """Return the group of one pod."""
    # A shell in the command finds the same torchrun and python.
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))
    env: dict[str, str] = {"PATH": path}
    for name, value in manifest.env[node].items():
        env[name] = rewrite(expand(value, env), mapping)
    given = tuple(rewrite(expand(word, env), mapping) for word in manifest.command)
    command = resolve(given)
    if command[0] == sys.executable and command[: len(TORCHRUN)] != TORCHRUN and manifest.nodes * procs == 1:
        env[ENV_RANK] = "0"
    if manifest.checkpoints:
        env[ENV_CHECKPOINTS] = rewrite(manifest.checkpoints, mapping)
    place = manifest.working_directory
    return Group(
        command=command,
        env=env | rendezvous(node, manifest.nodes, procs, port),
        directory=rewrite(place, mapping) if place else None,
    )


def resolve(command: tuple[str, ...]) -> tuple[str, ...]:
    """Put this environment's Python for `python` and `torchrun`."""
    first = Path(command[0]).name
    if first == "torchrun":
        return (*TORCHRUN, *command[1:])
    if first in PYTHONS:
        return (sys.executable, *command[1:])
    return command


def rendezvous(node: int, nodes: int, procs: int, port: int) -> dict[str, str]:
    """Return torchrun's variables, as the operator sets them: all nodes meet at one port of this machine."""
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(procs),
        "PET_NODE_RANK": str(node),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
        "PET_RDZV_BACKEND": "static",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
