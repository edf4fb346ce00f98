"""A limit to memory, by a cgroup of either version: where it ends, the kernel kills a process."""

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
ENTER = ["bash", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"']  # then the folder, and what runs in it


def limited(name, size):
    """Make a cgroup whose processes have `size` bytes and no swap; it takes root. Return its folder."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    if unified:
        (CGROUPS / "cgroup.subtree_control").write_text("+memory")
    folder = (CGROUPS if unified else CGROUPS / "memory") / name
    folder.mkdir()
    memory, swap = ("max", "swap.max") if unified else ("limit_in_bytes", "memsw.limit_in_bytes")
    (folder / f"memory.{memory}").write_text(str(size))
    if (folder / f"memory.{swap}").exists():  # not where the kernel does not count swap
        (folder / f"memory.{swap}").write_text("0" if unified else str(size))
    return folder
