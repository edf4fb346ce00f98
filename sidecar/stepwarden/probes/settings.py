"""What STEPWARDEN_PROBES says: which probes run, and with which parameters."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stepwarden.probes import ranks, replicas
from stepwarden.probes.registry import ALL

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    **ranks.DEFAULTS,
    **{kind: {} for kind in replicas.KINDS},  # those that the hub alone finds have no parameters
    **{kind: probe.DEFAULTS for kind, probe in ALL.items()},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The probes that run, their parameters, and what could not be read (a sentence each)."""

    probes: Mapping[str, Mapping[str, float]]
    complaints: tuple[str, ...] = ()


def read(text: str | None) -> Settings:
    """Read the variable. What can't be meant is complained of and left at its default."""
    complaints = []
    try:
        raw = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict):
        return Settings(DEFAULTS, (f"STEPWARDEN_PROBES is not a JSON object: {text!r:.80}",))
    probes = {kind: dict(defaults) for kind, defaults in DEFAULTS.items()}
    for name, wanted in raw.items():
        if name not in DEFAULTS or not isinstance(wanted, dict):
            complaints.append(f"STEPWARDEN_PROBES: {name!r:.80} is not a probe: know {', '.join(DEFAULTS)}")
            continue
        complaints += unmeant(name, wanted)
        good = {key: value for key, value in wanted.items() if key in DEFAULTS[name] and positive(value)}
        probes[name] = {**DEFAULTS[name], **good}
        if wanted.get("enabled") is False:
            del probes[name]
    return Settings(probes, tuple(complaints))


def unmeant(probe: str, wanted: Mapping[str, Any]) -> Iterator[str]:
    """Complain of parameters that the probe doesn't have, and of values that it can't use."""
    known = ("enabled", *DEFAULTS[probe])
    for key, value in wanted.items():
        if key not in known:
            yield f"STEPWARDEN_PROBES: {probe} has no parameter {key!r:.80}: know {', '.join(known)}"
        elif not (isinstance(value, bool) if key == "enabled" else positive(value)):
            kind = "true or false" if key == "enabled" else "a number above 0"
            yield f"STEPWARDEN_PROBES: {key} of {probe} is {value!r:.80}: give {kind}"


def positive(value: object) -> bool:
    """Whether a value is a finite number above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf  # type: ignore[operator]  # seen to be a number
