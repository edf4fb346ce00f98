"""
What the hub leaves behind in its container's status: the job's findings.

A job may end while no operator runs. Its pods' statuses stay, and with them what a container
wrote to its termination log, of which the kubelet keeps 4,096 bytes.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepwarden.failure import is_consequence
from stepwarden.wire import Finding, to_dict

PATH = Path("/dev/termination-log")  # Kubernetes' default; it exists in containers only
SPACE = 4096  # bytes
LONGEST = 200  # characters of one string of evidence


def text(findings: Iterable[Finding]) -> str:
    """Put findings as JSON lines, without consequences; the earliest that don't fit are left out."""
    lines: list[str] = []
    left = SPACE
    for finding in reversed([each for each in findings if not is_consequence(each)]):
        line = written(brief(finding))
        if len(line) > SPACE:  # in some alphabets a character takes twelve
            line = written(brief(replace(finding, evidence={})))
        left -= len(line)  # JSON as written here is ASCII
        if left < 0:
            break
        lines.insert(0, line)
    return "".join(lines)


def written(body: Mapping[str, Any]) -> str:
    """Write one line."""
    return json.dumps(body, separators=(",", ":")) + "\n"


def brief(finding: Finding) -> dict[str, Any]:
    """Put a finding without what is empty, and without long evidence such as tracebacks."""
    body = to_dict(finding)
    body["message"] = body["message"][:LONGEST]
    body["evidence"] = {
        key: value[-LONGEST:] if isinstance(value, str) else value
        for key, value in body["evidence"].items()
        if isinstance(value, str | int | float | bool)
    }
    return {key: value for key, value in body.items() if value not in (None, [], {})}


def leave(findings: Iterable[Finding], path: Path = PATH) -> None:
    """Write the findings where the kubelet finds them, if this is a container that it runs."""
    if path.exists() and (said := text(findings)):
        path.write_text(said, encoding="utf-8")
