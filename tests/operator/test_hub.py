"""The operator's client of a hub, against a real HTTP server."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stepwarden.wire import Instruction, JobReport, from_line, to_line
from stepwarden_operator.hub import Hub, HubError

REPORT = JobReport(version="7")


@pytest.fixture
async def asked():
    """The server, the requests that it got, and what it answers."""
    seen, answer = [], {"text": to_line(REPORT), "status": 200}

    async def handle(request):
        seen.append((request.method, request.path_qs, request.headers["Authorization"], await request.text()))
        return web.Response(**answer)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    async with TestServer(app, host="127.0.0.1") as server:
        hub = Hub(server.port)
        yield hub, seen, answer
        await hub.close()


async def test_a_long_poll_carries_version_wait_and_token(asked):
    hub, seen, _ = asked
    assert await hub.report("127.0.0.1", "secret", "6", 5.0) == REPORT
    assert seen == [("GET", "/v1/job?version=6&wait=5.0", "Bearer secret", "")]


async def test_an_instruction_is_put_and_answered_by_a_report(asked):
    hub, seen, _ = asked
    order = Instruction(hold=True, acknowledged=4)
    assert await hub.instruct("127.0.0.1", "secret", order) == REPORT
    [(method, path, _, body)] = seen
    assert (method, path, from_line(body)) == ("PUT", "/v1/instruction", order)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": 401, "text": "the token is wrong"}, "401: the token is wrong"),
        ({"text": "no JSON"}, "Expecting value"),
        ({"text": to_line(Instruction())}, "answered with a Instruction"),
    ],
)
async def test_what_is_no_report_is_a_hub_error(asked, answer, words):
    hub, _, given = asked
    given |= answer
    with pytest.raises(HubError, match=words):
        await hub.report("127.0.0.1", "secret", "", 0)


async def test_a_hub_that_is_gone_is_a_hub_error(asked):
    hub, *_ = asked
    hub.port = 1
    with pytest.raises(HubError):
        await asyncio.wait_for(hub.report("127.0.0.1", "secret", "", 0), 10)
