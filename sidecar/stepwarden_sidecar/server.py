"""The sidecar's HTTP side. Reads requests, asks the sidecar, writes answers; decides nothing."""

import json
import logging
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web
from aiohttp.http import HttpProcessingError

from stepwarden.wire import Instruction, PodReport, from_dict, to_line
from stepwarden_sidecar import metrics
from stepwarden_sidecar.access import GATE, LIMITS, MAX_BODY, SIDECAR, access, body, pod_of, waiting
from stepwarden_sidecar.changes import Changes
from stepwarden_sidecar.digest import digest, line
from stepwarden_sidecar.gate import STRANGERS, Gate
from stepwarden_sidecar.handover import copy_of, cursor, read_copy, standbys
from stepwarden_sidecar.job import Job
from stepwarden_sidecar.limits import Limits
from stepwarden_sidecar.sidecar import Sidecar
from stepwarden_sidecar.views import read_view, to_json

MAX_WAIT = 300.0
HUB_HEADER = "Stepwarden-Hub"  # another value: the hub was started anew, and must be told everything again
STANDBY_HEADER = "Stepwarden-Standby"  # in the hub's answer: this pod is to keep a copy of what the hub knows
POD_HEADER = "Stepwarden-Hub-Pod"  # in the answer of who is not the hub: the pod that is

FIGURES = 19  # of a number in a query

Wanted = TypeVar("Wanted", Instruction, PodReport)
Read = TypeVar("Read")
NO_HTTP = (
    HttpProcessingError,
    web.RequestPayloadError,
    ConnectionError,
)  # the last: gone amid its own request


def application(sidecar: Sidecar, gate: Gate | None = None) -> web.Application:
    """Make the application, whose connections come through that gate."""
    app = web.Application(middlewares=[access], client_max_size=MAX_BODY)
    app[SIDECAR], app[GATE], app[LIMITS] = sidecar, gate or Gate(STRANGERS), Limits()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics_page)
    app.router.add_get("/v1/job", job)
    app.router.add_put("/v1/instruction", instruction)
    app.router.add_post("/v1/pods", pods)
    app.router.add_get("/v1/orders", orders)
    app.router.add_post("/v1/view", view)
    app.router.add_get("/v1/copy", copy)
    app.router.add_post("/v1/copy", settled)
    return app


def logger(sidecar: Sidecar) -> logging.Logger:
    """Make a logger for aiohttp that counts what was no HTTP instead of writing a traceback for each."""

    def count(record: logging.LogRecord) -> bool:
        cause = record.exc_info[1] if record.exc_info else None
        if record.msg.startswith("Error handling request") and isinstance(cause, NO_HTTP):
            sidecar.garbled()
            return False
        return record.levelno >= logging.INFO

    made = logging.getLogger("stepwarden_sidecar.http")
    made.setLevel(logging.DEBUG)  # where aiohttp tells of an unknown method
    made.addFilter(count)
    return made


async def healthz(_request: web.Request) -> web.Response:
    """Answer that the process lives."""
    return web.Response(text="ok\n")


async def metrics_page(request: web.Request) -> web.Response:
    """Answer Prometheus, in OpenMetrics where it accepts that."""
    body, content_type = metrics.page(request.app[SIDECAR], request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})


async def job(request: web.Request) -> web.Response:
    """Answer what the hub knows, once it differs from the version that the asker has."""
    sidecar = request.app[SIDECAR]
    known = of_hub(sidecar)
    version = request.query.get("version")
    if version is not None:
        await until(request, lambda: sidecar.version != version)
    return said(to_line(sidecar.job_report(known)))


async def instruction(request: web.Request) -> web.Response:
    """Take in what the operator wants, and answer what is known after."""
    sidecar = request.app[SIDECAR]
    known = of_hub(sidecar)
    sidecar.instruct(await message(request, Instruction))
    return said(to_line(sidecar.job_report(known)))


async def pods(request: web.Request) -> web.Response:
    """Take in what another pod's sidecar knows, and answer its orders."""
    sidecar = request.app[SIDECAR]
    of_hub(sidecar)
    report = await message(request, PodReport)
    if pod_of(request) not in (None, report.pod):
        raise web.HTTPForbidden(text=f"pod {pod_of(request)} can't speak for pod {report.pod}\n")
    of_hub(sidecar)  # still
    sidecar.pod_reported(report)
    keeps = {STANDBY_HEADER: "yes"} if sidecar.election and report.pod in standbys(sidecar) else {}
    return said(line(sidecar.orders), {HUB_HEADER: sidecar.boot, **keeps})


async def orders(request: web.Request) -> web.Response:
    """Answer the orders, once they differ from those that the asker has (`known`, their digest)."""
    sidecar = request.app[SIDECAR]
    of_hub(sidecar)
    if (known := request.query.get("known")) is not None:
        await until(request, lambda: digest(sidecar.orders) != known, sidecar.ordered)
    return said(line(sidecar.orders), {HUB_HEADER: sidecar.boot})


async def view(request: web.Request) -> web.Response:
    """Take in what another pod says of who is the hub, and answer the same."""
    sidecar = request.app[SIDECAR]
    if sidecar.election is None:
        raise web.HTTPNotFound(text="no other pod can be this job's hub\n")
    sidecar.election.heard(parsed(sidecar, await body(request), read_view), sidecar.clock())
    sidecar.views.tell()
    return said(to_json(sidecar.election.view(sidecar.clock())))


async def copy(request: web.Request) -> web.Response:
    """Answer what a standby lacks (it knows `cursor`, and `after` findings of `boot`); 204: nothing."""
    sidecar = request.app[SIDECAR]
    known = of_hub(sidecar)
    seen, boot = request.query.get("cursor", ""), request.query.get("boot", "")
    await until(request, lambda: cursor(sidecar, known) != seen)
    of_hub(sidecar)
    if cursor(sidecar, known) == seen:
        return web.Response(status=204)
    after = request.query.get("after", "")
    number = int(after) if after.isdecimal() and len(after) < FIGURES else -1
    return said(copy_of(sidecar, known, boot, number).to_json())


async def settled(request: web.Request) -> web.Response:
    """Take in what was settled by a hub that is none any more."""
    sidecar = request.app[SIDECAR]
    of_hub(sidecar)
    given = parsed(sidecar, await body(request), read_copy)
    sidecar.publish(of_hub(sidecar).compared(given.findings))
    sidecar.turn()
    return web.Response(status=204)


async def until(request: web.Request, met: Callable[[], bool], changes: Changes | None = None) -> None:
    """Wait until a condition is met, as long as the asker wants, while the sidecar lives and is the hub."""
    sidecar = request.app[SIDECAR]
    changes = changes or sidecar.changed
    end, job = sidecar.clock() + wait(request), sidecar.job
    async with waiting(request):
        while not (met() or sidecar.closing) and sidecar.job is job and (left := end - sidecar.clock()) > 0:
            await changes.wait(left, changes.count)


def of_hub(sidecar: Sidecar) -> Job:
    """Return the job that this hub knows; refuse where another sidecar is the hub, and say which."""
    if sidecar.job is not None:
        return sidecar.job
    url, headers = sidecar.settings.hub, {}
    if sidecar.election:
        pod = sidecar.election.view(sidecar.clock()).hub
        url = None if pod is None else sidecar.settings.candidates[pod]
        headers = {} if pod is None else {POD_HEADER: str(pod)}
    where = f"ask {url}" if url else "none is known at the moment, ask again soon"
    raise web.HTTPNotFound(text=f"this sidecar isn't the job's hub: {where}\n", headers=headers)


def wait(request: web.Request) -> float:
    """Read how long the asker wants to wait, in seconds."""
    raw = request.query.get("wait", "0")
    try:
        return max(0.0, min(float(raw), MAX_WAIT))
    except ValueError:
        request.app[SIDECAR].garbled()
        raise web.HTTPBadRequest(text=f"wait={raw!r:.80} is not a number of seconds\n") from None


async def message(request: web.Request, cls: type[Wanted]) -> Wanted:
    """Read a request's body as a message."""
    return read(request.app[SIDECAR], await body(request), cls)


def read(sidecar: Sidecar, raw: str | bytes, cls: type[Wanted]) -> Wanted:
    """Read a message; count and refuse what is none, with the reason."""

    def one(raw: str | bytes) -> Wanted:
        found = json.loads(raw)
        if isinstance(found, dict):
            return from_dict(cls, found)
        reason = "a JSON object is wanted"
        raise ValueError(reason)

    return parsed(sidecar, raw, one)


def parsed(sidecar: Sidecar, raw: str | bytes, reader: Callable[[str | bytes], Read]) -> Read:
    """Read what was sent; count and refuse what can't be read, with the reason."""
    try:
        return reader(raw)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    sidecar.garbled()
    raise web.HTTPBadRequest(text=f"{reason:.300}\n")


def said(line: str, headers: dict[str, str] | None = None) -> web.Response:
    """Answer a message."""
    return web.Response(text=f"{line}\n", content_type="application/json", headers=headers)
