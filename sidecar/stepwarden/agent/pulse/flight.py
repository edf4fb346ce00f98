"""
What torch's flight recorder has of the collective that a rank waits in, also where C++ has begun it.

It keeps the last 2,000 of a process, with their groups, sequence numbers and shapes: of gloo in newer torch,
of NCCL where `TORCH_FR_BUFFER_SIZE` (or torch's default) lets it. To read it all takes some 50 ms, so it is
asked once for each long wait. Source: PyTorch's "Flight Recorder for Debugging", version 2.10 of its dump.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
AFTER = 1.0  # seconds of waiting after which it is asked
WHOLE, UNSAID = "default_pg", "undefined"  # how torch describes the group of all ranks, and others


class Flight:
    """The recorder, asked once for each wait."""

    def __init__(self) -> None:
        """Begin with nothing waited for."""
        self.known: tuple[object, Mapping[str, Any]] = (None, {})

    def waited_for(self, which: object, seconds: float) -> Mapping[str, Any]:
        """Return what is recorded of a wait, `which` tells it from others; empty where that is nothing."""
        if seconds < AFTER:
            return {}
        if self.known[0] != which:
            self.known = (which, earliest(entries()))
        return self.known[1]


def entries() -> list[Mapping[str, Any]]:
    """Read all that is recorded: nothing where this torch has no recorder, or one of another form."""
    found: list[Mapping[str, Any]] = []
    for name in DUMPS:
        dump: Callable[..., bytes] | None = getattr(torch._C._distributed_c10d, name, None)  # noqa: SLF001 - public nowhere
        if dump is not None:
            found += json.loads(dump(includeCollectives=True, onlyActive=True)).get("entries", ())
    return found


def earliest(recorded: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the first of the collectives that have not ended, in the words of a Pulse."""
    waiting = [each for each in recorded if each.get("retired") is False]
    if not waiting:
        return {}
    first = min(waiting, key=lambda each: each["time_created_ns"])
    number = first["p2p_seq_id" if first.get("is_p2p") else "collective_seq_id"]
    shapes = zip(first.get("input_dtypes") or (), first.get("input_sizes") or (), strict=False)
    return {
        "name": str(first["profiling_name"]).rpartition(":")[2],
        "group": called(first["process_group"]),
        "sequence": int(number),
        "tensors": ", ".join(f"{kind.lower()}{list(sizes)}" for kind, sizes in shapes)[:200],
    }


def called(group: Sequence[str]) -> str:
    """Return a group's description with its own name, as several are described alike (`mesh_tp`)."""
    name, description = str(group[0])[:12], str(group[-1])  # a name may be a digest
    if description == WHOLE:
        return description
    return f"group {name}" if len(group) == 1 or description == UNSAID else f"{description} (group {name})"
