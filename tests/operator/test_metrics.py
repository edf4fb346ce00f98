"""The operator's HTTP side, asked as Prometheus asks."""

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from stepwarden_operator.metrics import METRICS, REGISTRY, Jobs
from stepwarden_operator.server import serve


@pytest.fixture
async def page():
    registry = CollectorRegistry()
    registry.register(Jobs(lambda: ["Held", "Running", "Held"]))
    runner = await serve(registry, 0)

    async def get(path="/metrics", **headers):
        [port] = [address[1] for address in runner.addresses if len(address) == 2]  # that of IPv4
        url = f"http://127.0.0.1:{port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
            return answer.content_type, await answer.text()

    yield get
    await runner.cleanup()


async def test_jobs_by_state_with_every_state(page):
    kind, text = await page(Accept="application/openmetrics-text; version=1.0.0")
    assert kind == "application/openmetrics-text"
    [family] = text_string_to_metric_families(text)
    counts = {sample.labels["state"]: sample.value for sample in family.samples}
    none = dict.fromkeys(("Pending", "Suspended", "Restarting", "Complete", "Failed"), 0)
    assert counts == none | {"Held": 2, "Running": 1}


async def test_the_older_format_and_health(page):
    kind, text = await page()
    assert kind == "text/plain"
    assert 'stepwarden_jobs{state="Held"} 2.0' in text
    assert await page("/healthz") == ("text/plain", "ok\n")


def test_what_is_described_is_what_is_served():
    served = {family.name for family in REGISTRY.collect()} | {"stepwarden_jobs"}
    assert served == {metric.name.removesuffix("_total") for metric in METRICS}
