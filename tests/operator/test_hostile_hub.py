"""The operator's client against a hub that is broken or mean: an error in time, or a report within bounds."""

import asyncio
import json
import time
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hostility import anything, findings, ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden.wire import Finding, JobReport, RankReport, from_dict, from_line, to_line
from stepwarden_operator import findings as kept
from stepwarden_operator import hub as client
from stepwarden_operator import ranks as counted
from stepwarden_operator.hub import Hub, HubError
from stepwarden_operator.trust import EVIDENCE, sound


async def gone(writer):
    """Let go of a connection whose other side may have gone first."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def asked(raw, *, wait=0.0):
    """Ask a server that answers with these bytes, whatever it is asked."""

    async def answer(_reader, writer):
        writer.write(raw)
        with suppress(ConnectionError):
            await writer.drain()
        await gone(writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    hub = Hub(server.sockets[0].getsockname()[1])
    try:
        return await hub.report("127.0.0.1", "secret", "", wait)
    finally:
        await hub.close()
        server.close()


def http(body, *, head=""):
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


BIG = b'{"type":"job","version":"' + b"x" * (client.LARGEST + 10) + b'"}'
ANSWERS = {
    "nothing": b"",
    "no http": b"\x16\x03\x01 what is this\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"type"',
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "too much": http(BIG),
    "too deep": http(b'{"type":"job","version":"1","findings":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "an endless number": http(b'{"type":"job","version":"1","orders":{"hold_at":' + b"9" * 5000 + b"}}"),
    "a number that no status takes": http(
        b'{"type":"job","version":"1","orders":{"hold_at":9007199254740993}}'
    ),
    "another message": http(b'{"type":"instruction"}'),
    "bytes": http(b"\xff\xfe\x00"),
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "an odd hub": b"HTTP/1.1 404 No\r\nStepwarden-Hub-Pod: \xb2\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_is_no_report_is_an_error_in_time(name):
    with pytest.raises(HubError) as caught:
        await asyncio.wait_for(asked(ANSWERS[name]), 30)
    assert len(str(caught.value)) < 10_000
    assert caught.value.hub is None


async def test_a_compressed_flood_is_not_unpacked_beyond_the_bound():
    async def bomb(_request):
        answer = web.Response(body=b"x" * (4 * client.LARGEST), content_type="application/json")
        answer.enable_compression()
        return answer

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", bomb)
    async with TestServer(app, host="127.0.0.1") as server:
        hub = Hub(server.port)
        with pytest.raises(HubError, match="longer than"):
            await hub.report("127.0.0.1", "secret", "", 0)
        await hub.close()


async def test_a_hub_that_says_where_the_hub_is():
    with pytest.raises(HubError) as caught:
        await asked(b"HTTP/1.1 404 No\r\nStepwarden-Hub-Pod: 3\r\nContent-Length: 0\r\n\r\n")
    assert caught.value.hub == 3


async def test_an_answer_that_comes_byte_by_byte_ends_with_the_deadline(monkeypatch):
    monkeypatch.setattr(client, "GRACE", 1.0)

    ended = asyncio.Event()

    async def drip(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        await gone(writer)
        ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    hub = Hub(server.sockets[0].getsockname()[1])
    began = time.monotonic()
    with pytest.raises(HubError):
        await hub.report("127.0.0.1", "secret", "", 0.0)
    assert time.monotonic() - began < 30  # one
    await hub.close()
    await asyncio.wait_for(ended.wait(), 20)
    server.close()


def test_evidence_is_bounded():
    deep = []
    for _ in range(500):
        deep = [deep]
    evidence = {"deep": deep, "run": [], "many": list(range(10_000)), "big": 10**300}
    evidence |= {f"text{number}": "x" * 10_000 for number in range(3)}
    report = JobReport(version="1", findings=(finding(evidence), finding({"text": ["y" * 30_000] * 50})))
    first, second = sound(report).findings
    assert "run" not in first.evidence
    assert len(first.evidence["many"]) == 256
    assert len(json.dumps(first.evidence)) < EVIDENCE
    assert set(second.evidence) == {"cut"}
    kept.to_status(first)


def finding(evidence):
    return Finding(kind="NonFiniteLoss", severity="critical", step=1, message="m", evidence=evidence)


def parts(cls, bodies):
    """Those that can be read."""
    found = []
    for body in bodies:
        with suppress(ValueError):
            found.append(from_dict(cls, json.loads(json.dumps(body))))
    return tuple(found)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ranks, max_size=4),
    st.lists(findings, max_size=4),
    st.dictionaries(st.text(max_size=4), anything),
)
def test_whatever_a_report_says_a_status_can_be_made_of_it(some_ranks, some_findings, more):
    report = JobReport(
        version="1", ranks=parts(RankReport, some_ranks), findings=parts(Finding, some_findings)
    )
    report = sound(from_line(json.dumps({**more, **json.loads(to_line(report))})))
    for each in report.findings:
        assert kept.run_of(each) == 0
        written = json.dumps(kept.to_status(each), allow_nan=False)
        assert len(written) < 200_000
    for rank in report.ranks:
        if rank.steps_per_second is not None:
            json.dumps(counted.figures(rank.steps_per_second), allow_nan=False)
            assert isinstance(counted.figures(rank.steps_per_second), float)
        assert -1 <= rank.step < 2**63
