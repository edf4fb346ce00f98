"""
Probes: pure functions from what a rank saw of a step to a verdict.

A probe is one file with one function. It reads no clock, no file, no socket and no tensor,
so a recorded observation gives the same verdict anywhere. To add one, write the file (`KIND`,
`NEEDS`, `DEFAULTS`, `probe`) and name it in `registry.PROBES`.
"""

from stepwarden.probes.observation import NonFinite, Observation
from stepwarden.probes.registry import ALL, Probe

__all__ = ["ALL", "NonFinite", "Observation", "Probe"]
