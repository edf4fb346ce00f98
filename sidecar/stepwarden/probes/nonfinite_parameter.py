"""NonFiniteParameter: a parameter or a buffer holds NaN or Inf."""

from collections.abc import Mapping

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "NonFiniteParameter"
NEEDS = None
DEFAULTS: Mapping[str, float] = {"every": 100}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether the parameters were finite before this step's update."""
    if not seen.checked:
        return Verdict("unknown", "NotDue", "parameters are checked every few steps, and when a step is bad")
    if seen.parameters is None:
        return Verdict("ok", "Finite", "all parameters and buffers are finite")
    cause = "" if seen.since is None else f", since the bad update of step {seen.since} was applied"
    message = f"{seen.parameters} before the update of step {seen.step}{cause}"
    return Verdict(
        "bad",
        "NotFinite",
        message,
        finding(seen, KIND, message, bad=seen.parameters, first_step=seen.since),
    )
