"""
Probes: pure functions from what a rank saw of a step to a verdict.

A probe is one file with one function. It reads no clock, no file, no socket and no tensor,
so a recorded observation gives the same verdict anywhere. To add one, write the file, name
it in `ALL`, and its parameters in `settings.DEFAULTS`. The order is that of the findings of
a step: a cause stands before its consequence.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from stepwarden.probes import nonfinite_gradient, nonfinite_loss, nonfinite_parameter
from stepwarden.probes.observation import NonFinite, Observation
from stepwarden.wire import Verdict

__all__ = ["ALL", "NonFinite", "Observation", "Probe"]

Probe = Callable[[Observation], Verdict]

ALL: Mapping[str, Probe] = MappingProxyType(
    {
        nonfinite_parameter.KIND: nonfinite_parameter.probe,
        nonfinite_loss.KIND: nonfinite_loss.probe,
        nonfinite_gradient.KIND: nonfinite_gradient.probe,
    }
)
