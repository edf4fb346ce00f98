"""NonFiniteLoss: the loss that backward started from is NaN or Inf."""

import math
from collections.abc import Mapping

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Severity, Verdict

KIND = "NonFiniteLoss"
NEEDS = None
DEFAULTS: Mapping[str, float] = {}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """
    Say whether the loss is finite.

    A batch without any label has a NaN loss and zero gradients: that is healthy, so a
    bad loss is only critical when gradients that will be used are bad as well.
    """
    if seen.loss is None:
        return Verdict("unknown", "NoLoss", "backward did not start from a scalar")
    if math.isfinite(seen.loss):
        return Verdict("ok", "Finite", f"loss {seen.loss:.6g}")
    poisoned = seen.gradients is not None and not seen.scaled
    effect = "and so are gradients" if poisoned else "but no gradient that will be used is"
    message = f"the loss is {seen.loss} on rank {seen.rank}, {effect}"
    severity: Severity = "critical" if poisoned else "info"
    return Verdict("bad", "NotFinite", message, finding(seen, KIND, message, severity=severity))
