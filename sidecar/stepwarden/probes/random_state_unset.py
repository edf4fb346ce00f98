"""RandomStateUnset: a seed, a thread count or a determinism switch that the run asked for is not in force."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from stepwarden.probes.finding import finding
from stepwarden.wire import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwarden.probes.observation import Observation
    from stepwarden.wire import Severity

KIND = "RandomStateUnset"
DEFAULTS: Mapping[str, float] = {"every": 100, "drawn": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    One thing that was asked for, as it is found.

    `name` is what it is called in torch, numpy or Python. `seed` says that it is one: then `found`
    None means one of the system's. `file` and `line` are the program's call that set it.
    """

    name: str
    asked: int | bool
    found: int | bool | None
    seed: bool = False
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """What the run asked for. `began` is whether no step was looked at before."""

    settings: tuple[Setting, ...]
    began: bool


NEEDS = RandomState


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """
    Say whether all that was asked for is in force.

    A seed of the rank's own (asked + rank, + step, + both) is one that was asked for. One that is set in
    mid-run is as repeatable as the first, unless it looks drawn: from the clock, or by the system.
    """
    record = seen.record(RandomState)
    if record is None:
        return Verdict("unknown", "NotAsked", "the run asks for no seed, thread count or determinism")
    unset = [each for each in record.settings if not held(each, seen)]
    if not unset:
        said = ", ".join(each.name for each in record.settings)
        return Verdict("ok", "InForce", f"in force as the run asks: {said}")
    severe = [each for each in unset if record.began or not each.seed or drawn(each, settings["drawn"])]
    severity: Severity = "warning" if severe else "info"
    first, *others = severe or unset
    message = sentence(first) + "".join(f"; {phrase(each)}" for each in others)
    evidence = {"unset": [asdict(each) for each in unset]}
    found = replace(
        finding(seen, KIND, message, severity=severity, evidence=evidence), file=first.file, line=first.line
    )
    return Verdict("bad", "NotInForce", message, found)


def held(setting: Setting, seen: Observation) -> bool:
    """Whether one thing is as it was asked for."""
    if not setting.seed or setting.found is None:
        return setting.found == setting.asked
    own = {0, seen.rank, seen.step, seen.rank + seen.step}
    return int(setting.found) - int(setting.asked) in own


def drawn(setting: Setting, least: float) -> bool:
    """Whether a seed looks like none that a person would write."""
    return setting.found is None or abs(setting.found) >= least


def phrase(setting: Setting) -> str:
    """Say what was asked for and what is found."""
    found = "what the system drew" if setting.found is None else setting.found
    where = f" (set at {setting.file}:{setting.line})" if setting.file else ""
    return f"{setting.name} is {found}{where} and not {setting.asked}"


def sentence(setting: Setting) -> str:
    """Say it, with what follows and the way out."""
    way = "take that call out, or ask for what it sets" if setting.file else "the run can't be repeated so"
    return f"the run is not the one that was asked for, {phrase(setting)}: {way}"
