"""Answers are read to their end: aiohttp hands on what has come so far, 64 KiB as a rule."""

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stepwarden.answers import whole

BODY = b"0123456789abcdef" * 65536


async def ask(most):
    async def body(_request):
        return web.Response(body=BODY)

    app = web.Application()
    app.router.add_get("/", body)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        session.get(server.make_url("/")) as answer,
    ):
        return await whole(answer, most)


async def test_a_long_answer_is_read_whole():
    assert await ask(len(BODY)) == BODY


async def test_one_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match=f"longer than {len(BODY) - 1} bytes"):
        await ask(len(BODY) - 1)
