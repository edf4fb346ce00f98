"""
The sidecar's metrics: what each of them is, and how it is made of what the sidecar knows.

At most 20 series a rank. `python -m stepwarden_sidecar.metrics` prints them as a Markdown table.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from stepwarden.metrics import Kind, Metric, table
from stepwarden_sidecar.ranks import BUCKETS, Rank

if TYPE_CHECKING:
    from stepwarden_sidecar.sidecar import Sidecar

RANK = ("rank",)


def metric(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Metric:
    """Describe one metric of the sidecar."""
    return Metric(name=name, kind=kind, labels=labels, help=text, source="sidecar")


STEP = metric(
    "stepwarden_step", "gauge", RANK, "Last optimizer step that the rank reached; -1 before the first."
)
STEP_SECONDS = metric(
    "stepwarden_step_seconds", "histogram", RANK, "Time from one optimizer step to the next."
)
LAST_STEP = metric(
    "stepwarden_last_step_timestamp_seconds",
    "gauge",
    RANK,
    "When the rank last took a step, since the epoch.",
)
LOSS = metric("stepwarden_loss", "gauge", RANK, "Loss that the rank's last backward pass started from.")
NORM = metric("stepwarden_gradient_norm", "gauge", RANK, "Norm of all gradients at the rank's last step.")
HELD = metric("stepwarden_rank_held", "gauge", RANK, "1 while the rank is held at a step boundary, else 0.")
FINDINGS = metric(
    "stepwarden_findings_total",
    "counter",
    ("kind", "severity"),
    "Findings of the job, merged over its ranks; only the hub (pod 0) has them.",
)
DROPPED = metric(
    "stepwarden_dropped_records_total",
    "counter",
    RANK,
    "Messages that the rank dropped: its sidecar couldn't take them.",
)
OVERHEAD = metric(
    "stepwarden_agent_overhead_seconds_total",
    "counter",
    RANK,
    "Time that the agent itself took of the rank's steps.",
)
MALFORMED = metric(
    "stepwarden_malformed_messages_total", "counter", (), "Datagrams and HTTP requests that were no messages."
)

METRICS = (STEP, STEP_SECONDS, LAST_STEP, LOSS, NORM, HELD, FINDINGS, DROPPED, OVERHEAD, MALFORMED)

GAUGES: tuple[tuple[Metric, Callable[[Rank], float | None]], ...] = (
    (STEP, lambda rank: rank.step),
    (LAST_STEP, lambda rank: rank.last.time if rank.last else None),
    (LOSS, lambda rank: rank.last.loss if rank.last else None),
    (NORM, lambda rank: rank.last.gradient_norm if rank.last else None),
    (HELD, lambda rank: float(rank.state == "held")),
)
COUNTERS: tuple[tuple[Metric, Callable[[Rank], float]], ...] = (
    (DROPPED, lambda rank: rank.dropped),
    (OVERHEAD, lambda rank: rank.overhead),
)


class Collected(Collector):
    """The metrics of one sidecar, made anew at each scrape. Job and namespace stand on every one."""

    def __init__(self, sidecar: "Sidecar") -> None:
        self.sidecar = sidecar
        self.names = [name for name, _ in sidecar.settings.labels]
        self.values = [value for _, value in sidecar.settings.labels]

    def collect(self) -> Iterator[Family]:
        """Yield each metric with its values."""
        for what, value in GAUGES:
            gauge = GaugeMetricFamily(what.name, what.help, labels=self.labels(what))
            for rank in self.sidecar.ranks:
                if (now := value(rank)) is not None:
                    gauge.add_metric([*self.values, str(rank.rank)], now)
            yield gauge
        for what, total in COUNTERS:
            counter = self.counter(what)
            for rank in self.sidecar.ranks:
                counter.add_metric([*self.values, str(rank.rank)], total(rank))
            yield counter
        yield from (self.step_seconds(), self.findings(), self.malformed())

    def labels(self, what: Metric) -> list[str]:
        """Return a metric's label names: the job's, then its own."""
        return [*self.names, *what.labels]

    def counter(self, what: Metric) -> CounterMetricFamily:
        """Begin a counter."""
        return CounterMetricFamily(what.name, what.help, labels=self.labels(what))

    def step_seconds(self) -> HistogramMetricFamily:
        """Make the histogram of step times."""
        family = HistogramMetricFamily(STEP_SECONDS.name, STEP_SECONDS.help, labels=self.labels(STEP_SECONDS))
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        for rank in self.sidecar.ranks:
            buckets = list(zip(bounds, accumulate(map(float, rank.counts)), strict=True))
            family.add_metric([*self.values, str(rank.rank)], buckets, sum_value=rank.seconds)
        return family

    def findings(self) -> CounterMetricFamily:
        """Make the counts of findings."""
        family = self.counter(FINDINGS)
        for (kind, severity), count in sorted(self.sidecar.job.counts.items() if self.sidecar.job else ()):
            family.add_metric([*self.values, kind, severity], count)
        return family

    def malformed(self) -> CounterMetricFamily:
        """Make the count of what was no message."""
        family = self.counter(MALFORMED)
        family.add_metric(self.values, self.sidecar.malformed)
        return family


def page(sidecar: "Sidecar", accept: str) -> tuple[bytes, str]:
    """Write all metrics for a scraper that accepts these types; return the body and its type."""
    registry = CollectorRegistry()
    registry.register(Collected(sidecar))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


if __name__ == "__main__":
    sys.stdout.write(table(METRICS))
