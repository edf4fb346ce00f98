"""NonFiniteGradient: a gradient that the optimizer is about to use holds NaN or Inf."""

from collections.abc import Mapping

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "NonFiniteGradient"
NEEDS = None
DEFAULTS: Mapping[str, float] = {}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether all gradients are finite. What a scaler is about to skip is no fault."""
    if seen.gradients is None and seen.gradient_norm is None:
        return Verdict("unknown", "NoGradients", "no parameter of the optimizer has a gradient")
    if seen.gradients is None:
        return Verdict("ok", "Finite", f"gradient norm {seen.gradient_norm:.3g}")
    if seen.scaled:
        return Verdict("ok", "ScalerSkips", "the gradients overflowed, the scaler skips this step")
    message = f"the gradient of {seen.gradients}, {origin(seen)}{before(seen)}{late(seen)}"
    return Verdict("bad", "NotFinite", message, finding(seen, KIND, message, bad=seen.gradients))


def origin(seen: Observation) -> str:
    """Say what is known of the rank that it began on."""
    if seen.local is None:
        return f"on rank {seen.rank}"
    if seen.local:
        return f"born on rank {seen.rank}"
    return f"on rank {seen.rank}, whose own gradient was finite before the reduction"


def late(seen: Observation) -> str:
    """Say that the update was applied, where it was."""
    return "; found one step late, its update was applied (containment: deferred)" if seen.late else ""


def before(seen: Observation) -> str:
    """Say what the norm was in the step before."""
    return f"; the gradient norm was {seen.norms[-1]:.3g} in the step before" if seen.norms else ""
