"""ParameterUntied: two parameters that were one (tied weights) no longer are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.named import named
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "ParameterUntied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Untied:
    """
    A parameter that was in two places, of which each has its own one now.

    `equal` is the part of their values that are the same. `by_hand`: the program itself put a new parameter
    into one place and gave it to an optimizer. `memory`: they were two parameters in one memory. `place` is
    the line that put the new one there, `names` those of the places.
    """

    names: tuple[str, ...] = ()
    equal: float = 0.0
    by_hand: bool = False
    memory: bool = False
    place: tuple[str, int] | None = None


NEEDS = Untied
DEFAULTS: Mapping[str, float] = {
    "equal": 0.9,  # part of the values: a copy, and not a new beginning
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether tied weights came apart by accident: then each still has the other's values."""
    record = seen.record(Untied)
    if record is None:
        return Verdict("unknown", "NothingTied", "no tie was seen to end")
    names = " and ".join(record.names) or "two parameters"
    if record.by_hand:
        return Verdict("ok", "ByHand", f"{names} were made two by the program itself")
    if not record.equal >= settings["equal"]:
        return Verdict("ok", "NewBeginning", f"{names} no longer are one, and have values of their own")
    what = "shared their memory" if record.memory else "were one parameter"
    message = (
        f"{names} {what} and are two now, with {record.equal:.0%} of their values the same: from this step "
        "on they part; tie them again behind what copied them (a load with assign=True, to_empty, a wrapper) "
        "before the optimizer is made"
    )
    found = named(seen, KIND, message, record.names, evidence={"equal": record.equal})
    file, line = record.place or (None, None)
    return Verdict("bad", "Copied", message, replace(found, file=file, line=line))
