"""StaleCast: an autocast weight copy no longer equals its parameter."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "StaleCast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """
    The casts that a forward pass behind an update, in the same autocast region, was made of.

    `stale` parameters were used as they had been cast before the update of step `updated`; `parameters`
    names some of them. `file` and `line` are the call of the model.
    """

    stale: int
    updated: int
    parameters: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None


NEEDS = Casts
DEFAULTS: Mapping[str, float] = {}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether a forward pass used weights as they were before the last update."""
    record = seen.record(Casts)
    if record is None:
        return Verdict("unknown", "NotLooked", "no forward pass began in the autocast region of an update")
    if record.stale == 0:
        return Verdict("ok", "Fresh", "all weights were cast again behind the update")
    message = (
        f"{called(record)} used as cast to lower precision before the update of step {record.updated}, "
        "because the autocast region is still open and keeps its casts: leave the region between an update "
        "and the next forward pass, call torch.clear_autocast_cache() there, or open it with "
        "cache_enabled=False"
    )
    evidence = {"stale": record.stale, "updated": record.updated, "others": list(record.parameters[1:])}
    found = finding(seen, KIND, message, severity="warning", evidence=evidence | {"local": True})
    name = record.parameters[0] if record.parameters else None
    found = replace(found, parameter=name, module=name.rpartition(".")[0] or None if name else None)
    if record.file is not None:
        found = replace(found, file=record.file, line=record.line)
    return Verdict("bad", "Stale", message, found)


def called(record: Casts) -> str:
    """Say which parameters."""
    name = record.parameters[0] if record.parameters else "a parameter"
    return f"{name} is" if record.stale == 1 else f"{name} and {record.stale - 1} more parameters are"
