import math
import runpy
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from stepwarden.metrics import Metric, table
from stepwarden_sidecar.metrics import METRICS

from .conftest import eventually

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
READERS = {"text/plain": parser, OPENMETRICS: openmetrics}


async def scrape(sidecar, accept):
    async with sidecar.session.get(sidecar.url + "/metrics", headers={"Accept": accept}) as answer:
        text = await answer.text()
        assert answer.headers["Content-Type"].startswith(accept.partition(";")[0])
    families = list(READERS[accept].text_string_to_metric_families(text))
    return families, [sample for family in families for sample in family.samples]


def value(samples, name, **labels):
    [found] = [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]
    return found


@pytest.mark.parametrize("accept", READERS)
async def test_what_prometheus_reads(sidecar, agent, accept):
    named = {"STEPWARDEN_JOB": "llama", "STEPWARDEN_NAMESPACE": "ml"}
    hub = await sidecar(STEPWARDEN_RANKS="2", **named)
    first, second = agent(hub, 0), agent(hub, 1)
    first.takes(3, seconds=0.2, overhead_seconds=0.001, dropped=4)
    first.takes(4, seconds=0.5, overhead_seconds=0.002, dropped=5, loss=math.nan)
    first.finds(4, local=True)
    for rank in (first, second):
        rank.is_("held", 4)
    await eventually(hub.found)
    families, samples = await scrape(hub, accept)
    assert {each.name: each.type for each in families} == {
        each.name.removesuffix("_total"): each.kind for each in METRICS
    }
    assert all(each.labels["training_job"] == "llama" for each in samples)
    assert all(each.labels["namespace"] == "ml" for each in samples)
    own = {"rank": "0"}
    assert value(samples, "stepwarden_step", **own) == 4
    assert value(samples, "stepwarden_rank_held", rank="1") == 1
    assert math.isnan(value(samples, "stepwarden_loss", **own))
    assert value(samples, "stepwarden_gradient_norm", **own) == 1.5
    assert value(samples, "stepwarden_last_step_timestamp_seconds", **own) > 1e9
    assert value(samples, "stepwarden_dropped_records_total", **own) == 5
    assert value(samples, "stepwarden_agent_overhead_seconds_total", **own) == pytest.approx(0.003)
    assert value(samples, "stepwarden_step_seconds_count", **own) == 2
    assert value(samples, "stepwarden_step_seconds_sum", **own) == pytest.approx(0.7)
    assert value(samples, "stepwarden_step_seconds_bucket", le="0.316", **own) == 1
    labels = {"kind": "NonFiniteGradient", "severity": "critical"}
    assert value(samples, "stepwarden_findings_total", **labels) == 1
    assert value(samples, "stepwarden_malformed_messages_total") == 0
    assert max(Counter(each.labels.get("rank") for each in samples if "rank" in each.labels).values()) <= 20


async def test_findings_are_counted_by_the_hub_alone_so_that_sums_are_right(sidecar, agent):
    hub = await sidecar("pod0")
    follower = await sidecar("pod1", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    rank = agent(follower, 1)
    rank.finds(4, local=True)
    await eventually(hub.found)
    counts = [
        [
            each.value
            for each in (await scrape(one, "text/plain"))[1]
            if each.name == "stepwarden_findings_total"
        ]
        for one in (hub, follower)
    ]
    assert counts == [[1], []]


def test_every_metric_is_named_as_prometheus_wants_it():
    for metric in METRICS:
        assert metric.name.startswith("stepwarden_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert metric.source == "sidecar"
        assert "job" not in metric.labels  # Prometheus' own


def test_the_table():
    metric = Metric(name="a_seconds_total", kind="counter", labels=("x", "y"), help="Time.", source="sidecar")
    assert table([metric]).splitlines()[2] == "| `a_seconds_total` | counter | seconds | `x`, `y` | Time. |"


def test_the_docs_are_current():
    docs = Path(__file__).parents[2] / "docs"
    assert runpy.run_path(str(docs / "generate.py"))["main"](["--check"]) == 0
