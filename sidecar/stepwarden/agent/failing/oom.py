"""How many processes the kernel has killed for memory in this process' cgroup, of either version."""

import re
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def kills() -> int | None:
    """Return the count since the cgroup was made; None where that can't be read."""
    try:
        lines = OWN.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for path in candidates(lines):
        try:
            found = COUNT.search(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


def candidates(lines: list[str]) -> list[Path]:
    """Return the files that may have the count, the likeliest first, by the lines of /proc/self/cgroup."""
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = path.strip("/")
        if not controllers:
            found += [ROOT / below / "memory.events", ROOT / "memory.events"]
        elif "memory" in controllers.split(","):
            memory = ROOT / "memory"
            found += [memory / below / "memory.oom_control", memory / "memory.oom_control"]
    return found
