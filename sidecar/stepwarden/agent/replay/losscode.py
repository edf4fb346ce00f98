"""When the fault is in the user's loss code: the operator by what the graph saved, the line by its source."""

from __future__ import annotations

import linecache
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from stepwarden.agent.replay.lossside import TARGET
from stepwarden.agent.replay.story import ADVICE, Story

if TYPE_CHECKING:
    from stepwarden.agent.replay.lossside import LossSide

SHOWN = 12  # nodes of the loss in the evidence
SPELLED = {"div": r"/(?![/=])|\bdiv(?:ide)?_?\s*\(", "pow": r"\*\*|\bpow_?\s*\("}


def story(loss: LossSide, place: tuple[str, int] | None) -> Story:
    """Tell that the loss code is to blame, and as much more as is sure."""
    guilty = sorted(set(loss.guilty()))
    targets = [one for one in guilty if one.startswith(TARGET)]
    op = guilty[0] if len(guilty) == 1 and not targets else None
    file, line = place or (None, None)
    named = located(op, file, line) if op is not None and file is not None and line is not None else None
    at = f" ({PurePath(file).name}:{named or line})" if file is not None else ""
    if targets:
        cause = f"{targets[0]} itself holds NaN or Inf{at}: look at the data"
        return Story(status="ok", cause=cause, file=file, line=line, more={"loss_graph": loss.chain[:SHOWN]})
    what = f"{op} in the code" if op is not None else "the code"
    advice = f" - {ADVICE[op]}" if op in ADVICE else ""
    more: dict[str, Any] = {"loss_graph": loss.chain[:SHOWN], "loss_suspects": guilty}
    return Story(
        status="ok",
        cause=f"{what} between the model's output and backward(){at} made it, the output is finite{advice}",
        op=op,
        file=file,
        line=named or line,
        more=more,
    )


def located(op: str, file: str, called: int) -> int | None:
    """
    Return the one line above the call of backward that spells an operator, None where several do.

    First the lines just above the call, back to where their block begins; then the whole file.
    """
    spelled = re.compile(SPELLED.get(op, rf"\b{re.escape(op)}_?\s*\("))
    lines = linecache.getlines(file)
    body = [index for index in range(len(lines)) if spelled.search(code(lines[index]))]
    start = block(lines, called - 1)
    for found in ([index for index in body if start <= index < called], body):
        if len(found) == 1:
            return found[0] + 1
        if found:
            return None
    return None


def code(line: str) -> str:
    """Return a line without its comment and its strings."""
    return re.sub(r"(\"[^\"]*\"|'[^']*')", "''", line).partition("#")[0]


def block(lines: list[str], index: int) -> int:
    """Return where the block around a line begins: the last line above it that is indented less."""
    if not 0 <= index < len(lines):
        return 0
    depth = len(lines[index]) - len(lines[index].lstrip())
    for above in range(index - 1, -1, -1):
        text = lines[above]
        if text.strip() and len(text) - len(text.lstrip()) < depth:
            return above
    return 0
