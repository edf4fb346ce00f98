"""
What a metric is: described once, as data, from which its registry and its documentation are made.

Knows no metric by itself, and needs nothing but the standard library.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
UNITS = ("seconds", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `source` names the process that serves it: `sidecar` or `operator`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    source: str

    @property
    def unit(self) -> str:
        """The base unit, which Prometheus' naming rules put into the name; empty where it has none."""
        return next((unit for unit in UNITS if unit in self.name.split("_")), "")


def table(metrics: Iterable[Metric]) -> str:
    """Put metrics as a Markdown table, one row each."""
    rows = [("metric", "type", "unit", "labels", "meaning"), ("---",) * 5, *map(row, metrics)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def row(metric: Metric) -> tuple[str, ...]:
    """Put one metric as the cells of its row."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return (f"`{metric.name}`", metric.kind, metric.unit, labels, metric.help)
