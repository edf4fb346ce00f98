"""
Probes that compare what ranks are at: pure functions from all ranks' last pulses to a verdict.

The hub asks them at each turn. To add one, write its file (`KIND`, `DEFAULTS`) and name it here.
"""

from collections.abc import Mapping
from types import MappingProxyType

from stepwarden.probes.ranks import rank_hung, rank_straggling

__all__ = ["DEFAULTS", "rank_hung", "rank_straggling"]

DEFAULTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {probe.KIND: probe.DEFAULTS for probe in (rank_hung, rank_straggling)}
)
