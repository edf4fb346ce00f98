"""Where an exception began: behind its causes, in another process, or on another rank."""

import re
from collections.abc import Iterator

LOST_PEER = (
    *("closed by peer", "reset by peer", "Connection refused", "Broken pipe", "Timed out", "timed out"),
    *("Application timeout", "Socket Timeout", "Connection was likely closed"),
)
OF_THE_NETWORK = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError"})
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
BEGIN = "Traceback (most recent call last):"
INDENT = (" ", "\t", '"')


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, as Python prints them: the one that came first is last."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        hidden = one.__suppress_context__
        one = one.__cause__ if one.__cause__ is not None or hidden else one.__context__


def of_a_peer(error: BaseException) -> bool:
    """
    Whether a collective failed because another rank is gone: then the fault began there.

    What counts is the first of a chain: the user's code may have put another exception around it,
    and an exception of its own may have led it into a collective that fails.
    """
    *_, first = chain(error)
    if type(first).__name__ in OF_THE_NETWORK:
        return True
    text = str(first)
    return "gloo" in text and any(sign in text for sign in LOST_PEER)


def remote(error: BaseException) -> str:
    """
    Return the traceback that an exception carries as text from another process, or an empty text.

    torch's DataLoader has it in the message, multiprocessing and concurrent.futures in a cause.
    """
    return next((text for one in chain(error) if BEGIN in (text := str(one))), "")


def frames(text: str) -> list[tuple[str, int]]:
    """Return the lines of code in a traceback's text, the innermost last."""
    return [(frame["file"], int(frame["line"])) for frame in FRAME.finditer(text)]


def last_words(text: str) -> str:
    """Return the sentence that a traceback's text ends by: the exception's type and message."""
    lines = text.rpartition(BEGIN)[2].splitlines()
    words = [line.strip() for line in lines if line.strip() and not line.startswith(INDENT)]
    return " ".join(words)
