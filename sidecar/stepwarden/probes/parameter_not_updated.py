"""ParameterNotUpdated: a trainable parameter does not change although the optimizer stepped."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepwarden.probes.named import named, some
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "ParameterNotUpdated"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUpdated:
    """What is known of parameters that may be left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strangers(NotUpdated):
    """
    Trainable parameters that have a gradient and are in no optimizer.

    `why` says what makes it a mistake, and is empty where they may be left out on purpose:
    `stale` (the optimizer has parameters that no module has any more), `elsewhere` (it has those of another
    copy of the model), `late` (they came after the optimizer was made), `unfrozen` (they were frozen then),
    `loose` (they are in a plain list). `stale` counts the optimizer's parameters that no module has.
    """

    count: int = 0
    why: str = ""
    names: tuple[str, ...] = ()
    stale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Still(NotUpdated):
    """
    How much an optimizer's updates moved, of elements that have a gradient.

    `moved` of `of` elements that are looked at ever did, in `looks` updates. `low` is the part of those in
    half precision that moved in the last looks (None: there are none), `idle` the number of steps on end
    with a learning rate of zero in all groups.
    """

    of: int = 0
    moved: int = 0
    looks: int = 0
    low: float | None = None
    idle: int = 0
    rate: float | None = None
    dtype: str = ""
    names: tuple[str, ...] = ()


NEEDS = NotUpdated
DEFAULTS: Mapping[str, float] = {
    "steps": 10.0,  # on end with a learning rate of zero: a warm-up begins with one or two
    "looks": 5.0,  # at the update
    "part": 0.05,  # of the elements in half precision: where fewer move, the update is lost to rounding
}
REASONS = {
    "stale": (
        "the optimizer holds {stale} parameters that belong to no module any more instead; make the "
        "optimizer after the model is complete"
    ),
    "elsewhere": "the optimizer holds those of another copy of the model, without a gradient; give it these",
    "late": "they were added after the optimizer was made; make it afterwards, or call add_param_group",
    "unfrozen": "they were frozen when the optimizer was made, and left out; call add_param_group",
    "loose": "they are in a plain list, which parameters() misses; use nn.ParameterList or nn.ModuleList",
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether what is trained moves."""
    record = seen.record(NotUpdated)
    if isinstance(record, Strangers):
        return strangers(seen, record)
    if isinstance(record, Still):
        return still(seen, record, settings)
    return Verdict("unknown", "NotDue", "this is looked at every few steps")


def strangers(seen: Observation, record: Strangers) -> Verdict:
    """Judge what is in no optimizer."""
    if not record.count:
        return Verdict("ok", "AllOwned", "each parameter that has a gradient is in an optimizer")
    reason = REASONS.get(record.why)
    if reason is None:
        return Verdict(
            "ok", "LeftOut", f"{some(record.names, record.count)} are in no optimizer, from the start"
        )
    message = (
        f"{some(record.names, record.count)} get gradients but are in no optimizer, and never change: "
        + reason.format(stale=record.stale)
    )
    evidence = {"why": record.why, "count": record.count, "stale": record.stale}
    return Verdict(
        "bad", "NotInOptimizer", message, named(seen, KIND, message, record.names, evidence=evidence)
    )


def still(seen: Observation, record: Still, settings: Mapping[str, float]) -> Verdict:
    """Judge what doesn't move though it is in the optimizer."""
    if record.idle >= settings["steps"]:
        message = (
            f"the learning rate is 0 in all groups for {record.idle} steps, so no parameter changes; look at "
            "the scheduler (stepped too seldom, or past its end)"
        )
        return said(seen, record, "ZeroLearningRate", message)
    if record.looks < settings["looks"] or not record.of:
        return Verdict("unknown", "NoHistory", f"{record.looks} updates are too few to tell")
    if record.idle:
        return Verdict("unknown", "ZeroLearningRate", f"the learning rate is 0 for {record.idle} steps")
    if not record.moved:
        message = (
            f"none of {record.of} elements that are looked at changed in {record.looks} updates, although "
            f"they have gradients and the learning rate is {rate(record)}: the update is lost to rounding, "
            "or never applied"
        )
        return said(seen, record, "Still", message)
    if record.low is not None and record.low < settings["part"]:
        message = (
            f"the update is lost to rounding: {record.low:.2%} of the elements in {record.dtype} that have a "
            f"gradient change at a learning rate of {rate(record)}; keep master weights in float32, or round "
            "stochastically"
        )
        return said(seen, record, "LostToRounding", message)
    return Verdict("ok", "Moving", f"{record.moved} of {record.of} elements have changed")


def rate(record: Still) -> str:
    """Say the learning rate."""
    return "not known" if record.rate is None else f"{record.rate:.3g}"


def said(seen: Observation, record: Still, reason: str, message: str) -> Verdict:
    """Make the verdict."""
    evidence = {
        "moved": record.moved,
        "of": record.of,
        "looks": record.looks,
        "low_precision_moved": record.low,
        "idle_steps": record.idle,
        "learning_rate": record.rate,
    }
    return Verdict("bad", reason, message, named(seen, KIND, message, record.names, evidence=evidence))
