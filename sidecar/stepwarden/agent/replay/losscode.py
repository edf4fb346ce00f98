"""When the fault is in the user's loss code: the operator by what the graph saved, the line by its source."""

from __future__ import annotations

import ast
import linecache
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from stepwarden.agent.replay.lossside import TARGET
from stepwarden.agent.replay.story import ADVICE, Story

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepwarden.agent.replay.lossside import LossSide

Place = tuple[str, int]  # file and line
SHOWN = 12  # nodes of the loss in the evidence
SPELLED = {"div": r"/(?![/=])|\bdiv(?:ide)?_?\s*\(", "pow": r"\*\*|\bpow_?\s*\("}


def story(loss: LossSide, place: Place | None, called: Place | None) -> Story:
    """
    Tell that the loss code is to blame, and as much more as is sure.

    `place` is the call of backward, `called` that of the model: where a framework calls backward, the loss is
    near the other.
    """
    guilty = sorted(set(loss.guilty()))
    targets = [one for one in guilty if one.startswith(TARGET)]
    op = guilty[0] if len(guilty) == 1 and not targets else None
    found = next((one for one in map(op_at(op), (place, called)) if one is not None), place)
    file, line = found or (None, None)
    at = f" ({PurePath(file).name}:{line})" if file is not None else ""
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
        line=line,
        more=more,
    )


def op_at(op: str | None) -> Callable[[Place | None], Place | None]:
    """Return what finds an operator in the source around a place."""

    def find(place: Place | None) -> Place | None:
        line = located(op, *place) if op is not None and place is not None else None
        return (place[0], line) if place is not None and line is not None else None

    return find


def located(op: str, file: str, called: int) -> int | None:
    """
    Return the one line that spells an operator, None where several do.

    First of the lines just above a call, back to where their block begins; then of the whole file, but for
    its modules, whose own code is known to be finite.
    """
    spelled = re.compile(SPELLED.get(op, rf"\b{re.escape(op)}_?\s*\("))
    lines = linecache.getlines(file)
    found = [index for index in range(len(lines)) if spelled.search(code(lines[index]))]
    start, inside = block(lines, called - 1), modules("".join(lines))
    for near in (
        [index for index in found if start <= index < called],
        [index for index in found if index + 1 not in inside],
    ):
        if near:
            return near[0] + 1 if len(near) == 1 else None
    return None


def modules(text: str) -> set[int]:
    """Return the numbers of the lines of a source that belong to classes of modules."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    return {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Module") for base in node.bases)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


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
