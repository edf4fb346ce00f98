"""FrozenParameterChanged: a frozen parameter changed, or one that should be frozen gets gradients."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepwarden.probes.named import named, some
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "FrozenParameterChanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What is known of parameters that are, or should be, frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Frozen):
    """
    Frozen parameters that an update could reach: `changed` of `of` did, by `size` of their norm.

    They are in the optimizer and have a gradient left from before, or, `shared`, they lie in the memory of a
    parameter that is trained, `partner`.
    """

    of: int
    changed: int = 0
    size: float = 0.0
    shared: bool = False
    partner: str | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases(Frozen):
    """The layers with an adapter: the base weights of `trained` of `of` get gradients, and are updated."""

    of: int
    trained: int = 0
    names: tuple[str, ...] = ()


NEEDS = Frozen
DEFAULTS: Mapping[str, float] = {}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether the optimizer left alone what is frozen."""
    record = seen.record(Frozen)
    if isinstance(record, Changed):
        return changed(seen, record)
    if isinstance(record, Bases):
        return bases(seen, record)
    return Verdict("unknown", "NotDue", "no update could reach a frozen parameter")


def changed(seen: Observation, record: Changed) -> Verdict:
    """Judge what an update did to frozen parameters."""
    if not record.changed:
        return Verdict("ok", "Unchanged", f"{record.of} frozen parameters in an update's reach are as before")
    if record.shared:
        partner = record.partner or "parameters that are trained"
        reason = f"they lie in the same memory as {partner}: copy with clone(), or load_state_dict()"
    else:
        reason = (
            "the optimizer still has them, with a gradient that is not None, so momentum and weight decay "
            "move them: set it to None when you freeze, or take them out of the optimizer"
        )
    message = (
        f"the update changed {some(record.names, record.changed)} by {record.size:.3g} of their norm, "
        f"although requires_grad is False; {reason}"
    )
    evidence = {
        "changed": record.changed,
        "of": record.of,
        "relative_change": record.size,
        "shared": record.shared,
    }
    return Verdict("bad", "Changed", message, named(seen, KIND, message, record.names, evidence=evidence))


def bases(seen: Observation, record: Bases) -> Verdict:
    """Judge the layers under adapters. Where only some are trained, that may be meant."""
    if not record.of or record.trained < record.of:
        return Verdict(
            "ok", "Frozen", f"{record.of - record.trained} of {record.of} base weights get no gradient"
        )
    message = (
        f"all {record.of} layers with an adapter train their base weights too "
        f"({some(record.names, record.trained)} get gradients and are in the optimizer); call "
        "requires_grad_(False) on the base model, before the adapters are added"
    )
    evidence = {"trained": record.trained, "of": record.of}
    return Verdict("bad", "BaseTrained", message, named(seen, KIND, message, record.names, evidence=evidence))
