"""ParameterChangedOutsideStep: something other than the optimizer changed its parameters, once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.named import named, some
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "ParameterChangedOutsideStep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """
    What changed between the update before and this one.

    `changed` of `of` parameters that are looked at, after `quiet` steps in which nothing did. `size` is
    the change's L2 norm over that of the weights, `updates` over that of the update before.
    `occasion` is what the program did meanwhile, one of `OCCASIONS` or nothing; `resumed`: the optimizer's
    state was loaded as well. `waited` steps have passed in which it didn't come again; `step` is when it
    came, `place` the line of the occasion.
    """

    of: int
    step: int = 0
    changed: int = 0
    quiet: int = 0
    size: float = 0.0
    updates: float = 0.0
    occasion: str = ""
    resumed: bool = False
    waited: int = 0
    names: tuple[str, ...] = ()
    place: tuple[str, int] | None = None


NEEDS = Outside
OCCASIONS = {
    "load": ("load_state_dict", "load the optimizer's state as well, or put back what was there before"),
    "evaluation": ("an evaluation", "put the trained weights back after it"),
    "save": ("what was done for a checkpoint", "put the trained weights back after it"),
}
OTHERWISE = (
    "something other than the optimizer",
    "undo what was meant for a while (an EMA swap, a probe), or do it within the optimizer's step",
)
DEFAULTS: Mapping[str, float] = {
    "steps": 5.0,  # without a change, before one is out of the ordinary
    "updates": 1.5,  # times the update before: less is a projection (clamping, a largest norm)
    "part": 0.9,  # of the parameters: as many change in an average over steps, which comes again
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """
    Say whether only the optimizer changed its parameters.

    What is done in every step, or every few steps, is meant: clamping, masks, lookahead, averages.
    """
    record = seen.record(Outside)
    if record is None or record.of < 1:
        return Verdict("unknown", "NotFollowed", "no parameter can be followed from one step to the next")
    if healthy := meant(record, settings):
        return Verdict("ok", *healthy)
    everything = record.changed >= settings["part"] * record.of
    if everything and not record.occasion and record.waited < record.quiet:
        return Verdict("unknown", "MayComeAgain", "all parameters changed; an average over steps comes again")
    return bad(seen, record)


def meant(record: Outside, settings: Mapping[str, float]) -> tuple[str, str] | None:
    """Return a reason and a message where there is no change, or one that is meant."""
    if not record.changed:
        return "Untouched", f"none of {record.of} parameters changed between two steps"
    if record.resumed:
        return "Resumed", "parameters and the optimizer's state were loaded together"
    if record.quiet < settings["steps"]:
        return "Regular", f"the last change was only {record.quiet} steps ago"
    if not record.updates > settings["updates"]:
        return "Projection", f"the change is {record.updates:.3g} of an update"
    return None


def amount(record: Outside) -> str:
    """Say how much, where it was measured."""
    if not math.isfinite(record.size):
        return "by what was not measured"
    return f"by {record.size:.3g} of their norm ({record.updates:.3g} times the update before)"


def bad(seen: Observation, record: Outside) -> Verdict:
    """Say what changed, by how much and when."""
    how, out = OCCASIONS.get(record.occasion, OTHERWISE)
    message = (
        f"{how} changed {some(record.names, record.changed)}, of {record.of} parameters, between two steps, "
        f"{amount(record)}, after {record.quiet} steps in which only the optimizer did; {out}"
    )
    evidence = {
        "changed": record.changed,
        "of": record.of,
        "relative_change": record.size,
        "updates": record.updates,
        "quiet_steps": record.quiet,
    }
    first = record.step if record.step < seen.step else None
    found = named(seen, KIND, message, record.names, first_step=first, evidence=evidence)
    file, line = record.place or (None, None)
    return Verdict("bad", "Changed", message, replace(found, file=file, line=line))
