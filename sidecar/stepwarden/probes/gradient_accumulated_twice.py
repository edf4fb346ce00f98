"""GradientAccumulatedTwice: gradients are carried over steps, or counted twice."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepwarden.probes.named import named, some
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "GradientAccumulatedTwice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """
    What became of some gradients since the update before.

    `of` gradients are looked at. `carried` of them held what the update before had used when
    backward added to them, `doubled` got one loss in two backward passes. `names` are the bad ones'.
    """

    of: int
    carried: int = 0
    doubled: int = 0
    names: tuple[str, ...] = ()


NEEDS = Accumulation
DEFAULTS: Mapping[str, float] = {}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether each gradient is of one step, and holds each loss once."""
    record = seen.record(Accumulation)
    if record is None or record.of < 1:
        return Verdict("unknown", "NoGradients", "no gradient can be followed from one step to the next")
    looked = f"{record.of} gradients that are looked at"
    if record.carried:
        message = (
            "backward added to gradients that the update before had used already: "
            f"{some(record.names, record.carried)}, "
            f"of {looked}, were not cleared in between; call optimizer.zero_grad() once a step"
        )
    elif record.doubled:
        message = (
            "two backward passes of one step began at the same loss, so "
            f"{some(record.names, record.doubled)}, "
            f"of {looked}, hold it twice; call backward() once for each loss"
        )
    else:
        return Verdict("ok", "Cleared", f"none of {looked} was carried over or counted twice")
    evidence = {"carried": record.carried, "doubled": record.doubled, "of": record.of}
    found = named(seen, KIND, message, record.names, evidence=evidence)
    return Verdict("bad", "Carried" if record.carried else "Doubled", message, found)
