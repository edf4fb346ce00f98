"""`python -m stepwarden.agent.replay BUNDLE`: run a bundle's call again, and say who is to blame."""

from __future__ import annotations

import sys
from pathlib import Path

from stepwarden.agent.replay import bundle, story
from stepwarden.agent.replay.bundle import FIELDS, Bundle
from stepwarden.agent.replay.examining import examine

REPRODUCED, OTHERWISE, UNREADABLE = 0, 1, 2  # exit codes
SAME = ("op", "module", "line")


def main(path: str) -> int:
    """Run a bundle, and return the exit code."""
    try:
        read = bundle.load(Path(path))
    except Exception as error:  # noqa: BLE001 - whatever a bundle's classes raise is why it can't be read
        text = " ".join(str(error).split())
        print(f"stepwarden: can't read {path}: {type(error).__name__}: {text:.300}", file=sys.stderr)  # noqa: T201 - it is a command
        return UNREADABLE
    lines, code = tell(read)
    print("\n".join(lines))  # noqa: T201 - as above
    return code


def tell(read: Bundle) -> tuple[list[str], int]:
    """Run the call again; return what is said and the exit code."""
    made = f"step {read.made['step']}, torch {read.made['torch']}, Python {read.made['python']}"
    expected = f"expected     {read.expected['cause']}"
    try:
        seen = examine(read.snapshot)
    except Exception as error:  # noqa: BLE001 - the model is the user's
        return [f"made at      {made}", expected, f"it raised    {type(error).__name__}: {error}"], OTHERWISE
    if seen.birth is None:
        return [f"made at      {made}", expected, "found        all is finite: not reproduced"], OTHERWISE
    told = story.of_birth(seen.birth, seen.steps, type(read.snapshot.module).__name__, read.snapshot.prefix)
    found = {name: getattr(told, name) for name in FIELDS}
    reproduced = all(found[name] == read.expected[name] for name in SAME)
    lines = [
        f"made at      {made}",
        f"found        {told.cause or told.reason}",
        f"module       {told.module or '(the root)'}",
        f"op           {told.op or '-'}",
        f"line         {told.file}:{told.line}" if told.file else "line         -",
        f"label        {told.label or '-'}",
        f"magnitudes   largest input {story.number(told.largest_in)}, made {story.number(told.largest_out)}",
        "reproduced" if reproduced else f"not reproduced: {expected}",
    ]
    return lines, REPRODUCED if reproduced else OTHERWISE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
