"""UpdateWrongSize: the update is far too small or large for the parameters."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepwarden.probes.named import named
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "UpdateWrongSize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """
    The L2 norms of an update over those of the weights, for the `of` weight matrices that are looked at.

    `medians` are those of the last looks, the last one last, `largest` that of `name`. `highest` is the
    largest since the first step, and `looks` how many there were. `rate` is the largest learning rate.
    """

    of: int
    medians: tuple[float, ...] = ()
    largest: float = 0.0
    highest: float = 0.0
    looks: int = 0
    rate: float | None = None
    name: str | None = None


NEEDS = Sizes
DEFAULTS: Mapping[str, float] = {
    "large": 1.0,  # an update as large as the weights, in most matrices, in three looks
    "huge": 10.0,  # the same, in one
    "small": 1e-7,  # never more, in any matrix
    "looks": 10.0,  # before it is called small
}
ROW = 3  # looks in a row


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether weights are moved by a sensible part of themselves. About 1e-3 is usual."""
    record = seen.record(Sizes)
    if record is None or not record.of or not record.medians:
        return Verdict("unknown", "NoMatrices", "no weight matrix with a gradient is large enough to compare")
    median = record.medians[-1]
    steady = len(record.medians) >= ROW and min(record.medians[-ROW:]) > settings["large"]
    if median > settings["huge"] or steady:
        message = (
            f"the update is {median:.3g} times as large as the weights in the median of {record.of} matrices "
            f"and {record.largest:.3g} times in {record.name or 'the worst'} (1e-3 is usual), at a learning "
            f"rate of {said(record.rate)}; lower it"
        )
        return verdict(seen, record, "TooLarge", message)
    moving = record.rate is None or record.rate > 0
    if moving and record.looks >= settings["looks"] and record.highest < settings["small"]:
        message = (
            f"no update was larger than {record.highest:.3g} times the weights since the first step, in "
            f"{record.of} matrices (1e-3 is usual), at a learning rate of {said(record.rate)}: nothing is "
            "learned; raise it, or look for a factor that is lost"
        )
        return verdict(seen, record, "TooSmall", message)
    return Verdict("ok", "Sensible", f"the update is {median:.3g} of the weights in the median")


def said(rate: float | None) -> str:
    """Say a learning rate."""
    return "that is not known" if rate is None else f"{rate:.3g}"


def verdict(seen: Observation, record: Sizes, reason: str, message: str) -> Verdict:
    """Make the verdict, at the matrix that moves most."""
    evidence = {
        "median": record.medians[-1],
        "largest": record.largest,
        "highest": record.highest,
        "learning_rate": record.rate,
        "of": record.of,
    }
    names = (record.name,) if record.name else ()
    return Verdict("bad", reason, message, named(seen, KIND, message, names, evidence=evidence))
