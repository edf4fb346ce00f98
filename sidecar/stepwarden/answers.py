"""How sidecars and the operator read what an HTTP server answers: to its end, and no further than a bound."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp  # who calls has it; an agent has not


async def whole(answer: "aiohttp.ClientResponse", most: int) -> bytes:
    """Read an answer to its end. Raises `ValueError` where it has more than so many bytes."""
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most:
            answer.close()
            message = f"its answer is longer than {most} bytes"
            raise ValueError(message)
    return b"".join(parts)
