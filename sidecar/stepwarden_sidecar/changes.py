"""Waiting for a change: many may wait, whoever makes the change does not wait for them."""

import asyncio
from contextlib import suppress


class Changes:
    """Tells all who wait that something changed; what, they look up themselves."""

    def __init__(self) -> None:
        self.count = 0
        self.event = asyncio.Event()

    def tell(self) -> None:
        """Wake all who wait now."""
        self.count += 1
        self.event.set()
        self.event = asyncio.Event()

    async def wait(self, seconds: float, since: int) -> None:
        """Wait until there were more changes than `since` (see `count`), for so long at most."""
        if self.count == since:
            with suppress(asyncio.TimeoutError):  # Python 3.10 has its own, beside the built-in one
                await asyncio.wait_for(self.event.wait(), seconds)
