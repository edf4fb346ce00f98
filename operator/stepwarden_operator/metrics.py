"""The operator's own metrics. `METRICS` describes them; the table in the docs is made of it."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from stepwarden.metrics import Kind, Metric

STATES = ("Pending", "Running", "Held", "Suspended", "Restarting", "Complete", "Failed")
BUCKETS = tuple(1e-4 * 2**power for power in range(18))  # 0.1 ms to 13 s, each twice the one before


def describe(name: str, kind: Kind, text: str, labels: tuple[str, ...] = ()) -> Metric:
    """Describe one metric of the operator."""
    return Metric(name=name, kind=kind, labels=labels, help=text, source="operator")


JOBS = describe("stepwarden_jobs", "gauge", "TrainingJobs by the state that their status shows.", ("state",))
RECONCILE = describe(
    "stepwarden_reconcile_seconds",
    "histogram",
    "Time to observe a job, decide, and carry out what is to be done.",
)
ERRORS = describe(
    "stepwarden_reconcile_errors_total", "counter", "Reconciles that failed and were tried again."
)
HUB = describe(
    "stepwarden_hub_errors_total", "counter", "Questions or orders that a running job's hub did not answer."
)
WRITES = describe("stepwarden_status_writes_total", "counter", "Writes of a TrainingJob's status.")

METRICS: tuple[Metric, ...] = (JOBS, RECONCILE, ERRORS, HUB, WRITES)

REGISTRY = CollectorRegistry()
RECONCILE_SECONDS = Histogram(RECONCILE.name, RECONCILE.help, buckets=BUCKETS, registry=REGISTRY)
RECONCILE_ERRORS = Counter(ERRORS.name, ERRORS.help, registry=REGISTRY)
HUB_ERRORS = Counter(HUB.name, HUB.help, registry=REGISTRY)
STATUS_WRITES = Counter(WRITES.name, WRITES.help, registry=REGISTRY)


class Jobs(Collector):
    """Counts the jobs by state when it is asked, so that no count can drift."""

    def __init__(self, phases: Callable[[], Iterable[str]]) -> None:
        """Count what `phases` yields."""
        self.phases = phases

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge, with every state, as a state without jobs is a zero and not unknown."""
        family = GaugeMetricFamily(JOBS.name, JOBS.help, labels=JOBS.labels)
        found = Tally(self.phases())
        for state in STATES:
            family.add_metric([state], found[state])
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge without values: a registry asks for it when this is added."""
        yield GaugeMetricFamily(JOBS.name, JOBS.help, labels=JOBS.labels)
