"""A real sidecar against clients that are broken, slow, or mean: it answers /healthz afterwards."""

import asyncio
import json

import pytest
from hostility import anything, copies, instructions, pods
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import TOKEN, eventually

AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\n".encode()
HEAD = b"POST /v1/pods HTTP/1.1\r\nHost: x\r\n" + AUTHORIZED
ENDPOINTS = (
    ("PUT", "/v1/instruction"),
    ("POST", "/v1/pods"),
    ("POST", "/v1/view"),
    ("POST", "/v1/copy"),
    ("GET", "/v1/job"),
    ("GET", "/v1/orders"),
    ("GET", "/v1/copy"),
)

GARBAGE = {
    "nothing": b"",
    "zeros": b"\x00" * 5000,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "no version": b"GET /v1/job\r\n\r\n",
    "a version of the future": b"GET /healthz HTTP/9.9\r\n\r\n",
    "a long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "a long header": b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "an odd token": b"GET /v1/job HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\xed\r\n\r\n",
    "a header with a zero": b"GET /v1/job HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n{}",
    "an endless length": HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n{}",
    "a length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "a huge chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "chunks without an end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n{\r\n" * 50_000,
    "an unknown coding": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    "a pipeline": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000,
    "an upgrade": b"GET /healthz HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + b"x" * 9000,
    "half a request": HEAD + b"Content-Length: 100\r\n\r\n{",
    "bare line ends": b"GET /healthz HTTP/1.1\nHost: x\n\n",
}


async def send(hub, raw, *, half=False):
    """Send something, and read until the sidecar has said all, or closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    try:
        writer.write(raw)
        if half:
            writer.write_eof()
        await asyncio.wait_for(writer.drain(), 20)
        return await asyncio.wait_for(reader.read(1 << 16), 1.0) if raw else b""
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


async def well(hub):
    """Whether it lives, answers, and wrote no traceback."""
    assert await hub.ask("GET", "/healthz", token=None) == (200, "ok\n")
    assert "Traceback" not in hub.logged()
    assert (await hub.ask("GET", "/v1/job"))[0] == 200


async def test_what_is_no_http(sidecar):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    for raw in GARBAGE.values():
        await send(hub, raw)
        await send(hub, raw, half=True)
    await asyncio.gather(*(send(hub, raw) for raw in GARBAGE.values()))
    await well(hub)


async def test_bytes_at_random(sidecar):
    hub = await sidecar(STEPWARDEN_RANKS="2")
    parts = st.sampled_from(
        [*GARBAGE.values(), HEAD, b"\r\n", b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n"]
    )
    cut = st.binary(max_size=64) | parts.map(lambda raw: raw[:300])
    found = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(cut, max_size=4).map(b"".join))
    def collect(raw):
        found.append(raw)

    collect()
    for raw in found:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
        writer.write(raw)
        writer.transport.close()
        del reader
    await well(hub)


def samples(strategy, count):
    """Some values, with what JSON has no word for as Python writes it."""
    found = []

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value):
        found.append(json.dumps(value))

    collect()
    return found


@pytest.mark.parametrize(
    ("method", "path", "bodies"),
    [
        ("POST", "/v1/pods", pods),
        ("PUT", "/v1/instruction", instructions),
        ("POST", "/v1/copy", copies),
        ("POST", "/v1/pods", anything),
    ],
)
async def test_bodies_at_random(sidecar, method, path, bodies):
    hub = await sidecar(STEPWARDEN_RANKS="4")
    for body in samples(bodies, 150):
        status, text = await hub.ask(method, path, data=body)
        assert status in (200, 204, 400), (body, text)
    await well(hub)
    ranks = (await hub.job()).ranks
    assert {each.rank for each in ranks} <= set(range(4))


async def test_every_endpoint_refuses_what_has_no_token_whatever_it_brings(sidecar):
    hub = await sidecar()
    for method, path in ENDPOINTS:
        status, _ = await hub.ask(method, path, token="another", data=b"{}" * 1000)  # noqa: S106 - a test's
        assert status in (401, 429)
    for method in ("DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert (await hub.ask(method, "/v1/job", token=None))[0] == 401


async def test_who_asks_too_often_is_told_when_to_ask_again_and_others_are_served(sidecar):
    hub = await sidecar()
    refused = await eventually(lambda: flood(hub))
    assert set(refused) == {"1"}
    await well(hub)
    assert await eventually(lambda: served(hub))


async def flood(hub):
    """Ask much, and return how long the refused ones were told to wait."""

    async def ask():
        async with hub.session.get(f"{hub.url}/metrics") as answer:
            return answer.status, answer.headers.get("Retry-After")

    answers = await asyncio.gather(*(ask() for _ in range(200)))
    assert {status for status, _ in answers} <= {200, 429}
    return [wait for status, wait in answers if status == 429]


async def served(hub):
    return (await hub.ask("GET", "/metrics", token=None))[0] == 200


async def test_an_asker_has_so_many_requests_that_wait(sidecar):
    hub = await sidecar()
    version = (await hub.job()).version
    path = f"/v1/job?version={version}&wait=100"
    polls = [asyncio.create_task(hub.ask("GET", path)) for _ in range(20)]
    done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    while len(waiting) > 16:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert {poll.result()[0] for poll in done} == {429}
    for poll in waiting:
        poll.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await eventually(lambda: serves(hub, path))


async def serves(hub, path):
    """Whether a request may wait again: those that were given up are counted no more."""
    return (await hub.ask("GET", path.replace("wait=100", "wait=0")))[0] == 200


async def test_connections_that_say_nothing_keep_nobody_out(sidecar):
    hub = await sidecar()
    silent = [await asyncio.open_connection("127.0.0.1", hub.port) for _ in range(400)]
    await well(hub)
    first, _ = silent[0]
    assert await asyncio.wait_for(first.read(), 20) == b""  # it made room
    for _, writer in silent:
        writer.transport.abort()


async def test_a_head_that_comes_too_slowly_is_cut_off(sidecar):
    hub = await sidecar()
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    closed = asyncio.create_task(reader.read())
    for letter in b"GET /healthz HTTP/1.1\r\nHost: " + b"x" * 100:
        writer.write(bytes([letter]))
        await asyncio.wait({closed}, timeout=0.2)
        if closed.done():
            break
    assert await asyncio.wait_for(closed, 20) == b""
    writer.close()
    await well(hub)


async def test_a_body_that_never_comes_is_waited_for_no_longer(sidecar):
    hub = await sidecar()
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")
    assert b"408" in await asyncio.wait_for(reader.readline(), 40)
    writer.close()
    await well(hub)


async def test_a_pod_can_not_speak_for_another_one(sidecar):
    hub = await sidecar()
    headers = {"Authorization": f"Bearer {TOKEN}", "Stepwarden-Pod": "3"}
    async with hub.session.post(f"{hub.url}/v1/pods", headers=headers, data='{"pod": 1}') as answer:
        assert (answer.status, "can't speak for" in await answer.text()) == (403, True)
    async with hub.session.post(f"{hub.url}/v1/pods", headers=headers, data='{"pod": 3}') as answer:
        assert answer.status == 200
