"""What a TrainingJob's status says of its findings: pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepwarden.attempt import NEVER, Moment


def open_until(status: Mapping[str, Any]) -> Moment | None:
    """Return the moment that an acknowledgement must reach to end a finding's pause; None: there is none."""
    known, pause = status.get("acknowledged") or {}, status.get("pause") or {}
    of_run = known.get("run", 0) == status.get("run", 0)
    acknowledged = until(known) if of_run else NEVER
    return until(pause) if until(pause) > acknowledged else None


def until(said: Mapping[str, Any]) -> Moment:
    """Read attempt and step."""
    return int(said.get("attempt", 0)), int(said.get("step", -1))


def ranks_per_node(job: Mapping[str, Any]) -> int:
    """Return how many ranks a node has: as it is written, or by the job's status where that is "auto"."""
    spec = job.get("spec", {})
    given = spec.get("numProcPerNode", 1)
    if isinstance(given, int):
        return given
    total = job.get("status", {}).get("ranks", {}).get("total", 0)
    return max(1, int(total) // int(spec.get("numNodes", 1)))


def text(name: str, findings: Sequence[Mapping[str, Any]], status: Mapping[str, Any]) -> str:
    """Put findings as a person reads them, oldest first."""
    if not findings:
        return f"{name}: no findings\n"
    lines = [line for finding in findings for line in block(finding)]
    paused = open_until(status)
    if paused is not None:
        action, (_, step) = (status.get("pause") or {}).get("action", "Hold"), paused
        lines += [
            "",
            f"It is paused ({action}) at step {step}. To go on without that update, or with it:",
        ]
        lines += [f"  kubectl stepwarden resume {name} [--update skip|apply]"]
    return "".join(f"{line}\n" for line in lines)


def block(finding: Mapping[str, Any]) -> list[str]:
    """Return the lines of one finding."""
    began = "" if finding.get("rank") is None else f", began on rank {finding['rank']}"
    seen = ", ".join(map(str, finding.get("ranks") or ()))
    head = f"step {finding.get('step')}: {finding.get('kind')} ({finding.get('severity')}){began}"
    places = [f"{key} {finding[key]}" for key in ("parameter", "module", "op") if finding.get(key)]
    if finding.get("file"):
        places.append(f"{finding['file']}:{finding.get('line')}")
    return [
        f"{head}, seen on ranks {seen}" if seen else head,
        *([f"  {', '.join(places)}"] if places else []),
        f"  {finding.get('message', '')}",
        *(f"    {line}" for line in traceback(finding)),
    ]


def traceback(finding: Mapping[str, Any]) -> list[str]:
    """Return the lines of the traceback that a rank failed with, as far as a status keeps it."""
    if finding.get("kind") != "RankFailed":
        return []
    return str((finding.get("evidence") or {}).get("traceback") or "").rstrip().splitlines()
