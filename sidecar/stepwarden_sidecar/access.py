"""Who may ask the sidecar what, and how often: the layer before every handler. Knows no message."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from math import ceil

from aiohttp import web

from stepwarden_sidecar.gate import Gate, Guarded
from stepwarden_sidecar.limits import Limits, Rate
from stepwarden_sidecar.sidecar import Sidecar

POD_HEADER = "Stepwarden-Pod"  # in a sidecar's requests: each pod has an allowance of its own
POD = Rate(each_second=200.0, burst=400.0)  # a sidecar makes 60 a second at most
KNOWN = Rate(each_second=200.0, burst=400.0)  # an address whose requests have the token, and no pod
STRANGER = Rate(each_second=20.0, burst=100.0)  # an address without the token: metrics, and mistakes
WAITING = 16  # requests of one asker that wait for news
BODY = 10.0  # seconds in which a request's body must be here
MAX_BODY = 1024 * 1024

SIDECAR = web.AppKey("sidecar", Sidecar)
GATE = web.AppKey("gate", Gate)
LIMITS = web.AppKey("limits", Limits)
ASKER = "asker"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def access(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only those who know the token at /v1, and nobody ask too often."""
    known = authorized(request)
    guarded = request.app[GATE].open.get(request.protocol)
    if guarded:
        guarded.began(known=known)
    try:
        return await answer(request, handler, known=known)
    finally:
        if guarded:
            guarded.ended()


async def answer(request: web.Request, handler: Handler, *, known: bool) -> web.StreamResponse:
    """Answer a request, unless there are too many, or it needs the token and has none."""
    who, rate = asker(request, known=known)
    request[ASKER] = who
    if request.path != "/healthz":  # the kubelet asks: a flood must not make it take the sidecar for dead
        wait = request.app[LIMITS].ask(who, rate, request.app[SIDECAR].clock())
        if wait:
            raise too_many(wait)
    if request.path.startswith("/v1") and not known:
        raise web.HTTPUnauthorized(
            text="this needs the job's token: Authorization: Bearer $STEPWARDEN_TOKEN\n"
        )
    return await handler(request)


def authorized(request: web.Request) -> bool:
    """Whether a request has the token."""
    expected = f"Bearer {request.app[SIDECAR].settings.token}"
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode(errors="surrogateescape"), expected.encode())


def asker(request: web.Request, *, known: bool) -> tuple[Hashable, Rate]:
    """Return whose allowance a request is taken from."""
    if not known:
        return ("stranger", request.remote), STRANGER
    pod = pod_of(request)
    return (("known", request.remote), KNOWN) if pod is None else (("pod", pod), POD)


def pod_of(request: web.Request) -> int | None:
    """Return the pod whose sidecar asks, as it says."""
    given = request.headers.get(POD_HEADER, "")
    if not (given.isascii() and given.isdecimal() and len(given) <= 5):  # noqa: PLR2004 - figures
        return None
    return int(given)


def too_many(wait: float) -> web.HTTPTooManyRequests:
    """Make the answer to one who asks too often."""
    return web.HTTPTooManyRequests(
        text="too many requests: ask less often\n", headers={"Retry-After": str(ceil(wait))}
    )


@asynccontextmanager
async def waiting(request: web.Request) -> AsyncIterator[None]:
    """Count a request that waits for news while it does, and refuse it where its asker has too many."""
    limits, who = request.app[LIMITS], request[ASKER]
    if not limits.waits(who, WAITING):
        raise too_many(1.0)
    try:
        yield
    finally:
        limits.waited(who)


async def body(request: web.Request) -> bytes:
    """Read a request's body, in time."""
    try:
        return await asyncio.wait_for(request.read(), BODY)
    except asyncio.TimeoutError:
        guarded: Guarded | None = request.app[GATE].open.get(request.protocol)
        if guarded:
            asyncio.get_running_loop().call_later(1.0, guarded.abort)
        raise web.HTTPRequestTimeout(text=f"the body didn't come within {BODY:.0f} s\n") from None
