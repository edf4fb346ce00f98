"""Starts a sidecar from its environment, and ends it on SIGTERM or SIGINT."""

import asyncio
import logging
import os
import resource
import signal
import sys
from contextlib import AsyncExitStack

from aiohttp import web

from stepwarden.wire import ENV_PORT
from stepwarden_sidecar import settings
from stepwarden_sidecar.farewell import leave
from stepwarden_sidecar.gate import Gate
from stepwarden_sidecar.link import Link
from stepwarden_sidecar.lives import Lives
from stepwarden_sidecar.receiver import Receiver
from stepwarden_sidecar.server import application, logger
from stepwarden_sidecar.settings import Settings, SettingsError
from stepwarden_sidecar.sidecar import Sidecar
from stepwarden_sidecar.store import replace
from stepwarden_sidecar.succession import Succession

log = logging.getLogger("stepwarden_sidecar")

TURN = 0.2  # seconds after which it looks at its clock
SOON = 0.01  # seconds over which news are gathered
SHARE = 8.0  # times that a look took, until the next one
GRACE = 0.3  # seconds that open requests, and the last words to the hub, may take at the end
USAGE = 2  # exit code
IDLE = 75.0  # seconds that a connection without a request is kept
BACKLOG = 1024  # connections that wait to be accepted: all pods may come at once
FILES = 65_536


def main() -> None:
    """Run the sidecar until it is told to end."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s stepwarden-sidecar %(levelname)s %(message)s",
    )
    try:
        asyncio.new_event_loop().run_until_complete(run(settings.read(os.environ)))
        code = 0
    except (SettingsError, OSError) as error:
        sys.stderr.write(f"stepwarden-sidecar: {error}\n")
        code = USAGE if isinstance(error, SettingsError) else 1
    sys.stderr.flush()
    # Not sys.exit: that would wait for a thread that looks up the name of a hub which is gone, half a minute.
    os._exit(code)


async def run(given: Settings) -> None:
    """Serve until a signal says to end. Raises `OSError` where it can't listen."""
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    sidecar = Sidecar(given)
    sidecar.restore()
    lives = Lives(sidecar)
    receiver = Receiver(given.directory, lives.hear, sidecar.garbled)
    sidecar.tell = receiver.tell
    async with AsyncExitStack() as stack:
        receiver.open()  # before it is said to be healthy: ranks that find no socket go on unheld
        stack.callback(receiver.close)
        lives.drain = receiver.read
        await lives.open()
        stack.callback(lives.close)
        await serve(sidecar, stack)
        tasks = [asyncio.create_task(turns(sidecar))]
        link, succession = None, None
        if given.hub:
            link = await stack.enter_async_context(Link(sidecar, given.hub))
            tasks += [asyncio.create_task(link.push_forever()), asyncio.create_task(link.listen_forever())]
        elif given.candidates:
            succession = await stack.enter_async_context(Succession(sidecar))
            tasks.append(asyncio.create_task(succession.forever()))
        ended = asyncio.create_task(end.wait())
        await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        receiver.read()
        lives.finish()
        sidecar.close()
        if sidecar.job:
            leave(sidecar.job.settled.values())
        if last := succession.link if succession else link:
            await last_words(last)


async def turns(sidecar: Sidecar) -> None:
    """Let the sidecar look at its clock, and soon at what came; the more ranks, the less often."""
    while True:
        seen, began = sidecar.stirred.count, sidecar.clock()
        sidecar.turn()
        await asyncio.sleep(max(SOON, SHARE * (sidecar.clock() - began)))
        await sidecar.stirred.wait(TURN, seen)


async def last_words(link: Link) -> None:
    """Tell the hub how it ended, if it can be told soon."""
    try:
        await asyncio.wait_for(link.push(), GRACE)
    except Exception as error:  # noqa: BLE001 - it ends in any case, and says why the hub was not told
        log.info("the hub was not told the end: %s: %s", type(error).__name__, error)


async def serve(sidecar: Sidecar, stack: AsyncExitStack) -> None:
    """Listen for HTTP, and write down the port that it got."""
    given = sidecar.settings
    gate = Gate(files() // 2, given.ranks or 0)
    runner = web.AppRunner(
        application(sidecar, gate),
        access_log=None,
        logger=logger(sidecar),
        shutdown_timeout=GRACE,
        keepalive_timeout=IDLE,
        handler_cancellation=True,  # who hangs up waits no more
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    assert runner.server  # noqa: S101 - set up just now
    server = await asyncio.get_running_loop().create_server(
        gate.factory(runner.server), given.bind, given.port, reuse_address=True, backlog=BACKLOG
    )
    stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    if given.port == 0:
        replace(given.directory / "port", f"{port}\n")
    role = f"its hub is {given.hub}" if given.hub else "the job's hub"
    if given.candidates:
        role = f"one of {len(given.candidates)} pods that can be the job's hub"
    log.info(
        "pod %d: listening at %s:%d (%s=%d), %s", given.pod, given.bind, port, ENV_PORT, given.port, role
    )


def files() -> int:
    """Let the process have as many open files as it may, and return how many: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


if __name__ == "__main__":
    main()
