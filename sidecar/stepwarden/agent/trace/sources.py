"""
Where a number goes that came out of a tensor, as far as the user's source tells.

`scale = 1 / (x.item() + 1)` is no longer the number that torch gave: its way is read in the function's
text, by names and attributes.
"""

from __future__ import annotations

import ast
import linecache
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwarden.probes.trace import Op, Trace

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PASSES = 3  # over a function's statements: loops carry names back


@lru_cache(maxsize=64)
def parsed(file: str) -> ast.Module | None:
    """Return the syntax of a file, None where it has none."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def carried(file: str, line: int) -> set[int]:
    """Return the lines that use what the expression on `line` gave, by names or attributes, or at once."""
    tree = parsed(file)
    if tree is None:
        return set()
    scope = innermost(tree, line)
    born, names = holders(scope, line)
    found = {number for node in at_once(born) for number in span(node)}
    attributes = {name for name in names if "." in name}
    for part, known in ((scope, names), (tree, attributes)):
        for node in ast.walk(part):
            if isinstance(node, ast.expr) and named(node) in known and isinstance(context(node), ast.Load):
                found |= set(span(node))
    return found


def holders(scope: ast.AST, line: int) -> tuple[set[ast.expr], set[str]]:
    """Return the expressions on a line, and the names and attributes that hold what they gave."""
    born = {node for node in ast.walk(scope) if isinstance(node, ast.expr) and covers(node, line)}
    names: set[str] = set()
    for _ in range(PASSES):
        for node in statements(scope):
            value = getattr(node, "value", None)
            if isinstance(value, ast.expr) and (value in born or uses(value, names)):
                names |= targets(node)
    return born, names


def returned(file: str, line: int) -> bool:
    """Whether a function returns what the expression on `line` gave."""
    tree = parsed(file)
    if tree is None or isinstance(scope := innermost(tree, line), ast.Module):
        return False
    born, names = holders(scope, line)
    results = [
        node.value for node in ast.walk(scope) if isinstance(node, ast.Return) and node.value is not None
    ]
    return any(value in born or uses(value, names) for value in results)


def places(op: Op) -> Iterator[tuple[str, int]]:
    """Yield the lines whose expressions gave a number: where it came out, and where functions returned it."""
    if op.file is None or op.line is None:
        return
    place = (op.file, op.line)
    yield place
    for caller in op.callers:
        if not returned(*place):
            return
        yield caller
        place = caller


def innermost(tree: ast.Module, line: int) -> ast.AST:
    """Return the function that a line is in."""
    found: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and covers(node, line):
            found = node  # walked from the outside in
    return found


def statements(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the assignments of a function."""
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)
    return (node for node in ast.walk(scope) if isinstance(node, kinds))


def targets(node: ast.AST) -> set[str]:
    """Return the names and attributes that an assignment sets."""
    places = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]  # of `statements`
    return {name for place in places for part in ast.walk(place) if (name := named(part)) and name != "self"}


def uses(value: ast.expr, names: set[str]) -> bool:
    """Whether an expression uses one of some names."""
    return any(named(node) in names for node in ast.walk(value))


def at_once(born: set[ast.expr]) -> list[ast.expr]:
    """Return the arithmetic around an expression, whose other side may be a tensor."""
    return [node for node in born if isinstance(node, ast.BinOp)]


def named(node: ast.AST) -> str | None:
    """Return a name, or an attribute as `self.scale`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def context(node: ast.AST) -> ast.AST | None:
    """Return whether a name is read or set."""
    return getattr(node, "ctx", None)


def covers(node: ast.AST, line: int) -> bool:
    """Whether a part of the source has a line."""
    return line in span(node)


def span(node: ast.AST) -> range:
    """Return the lines of a part of the source."""
    first = getattr(node, "lineno", 0)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)


def optional(file: str, line: int) -> bool:
    """
    Whether the source has a choice at a line: a part that is frozen for a while is written so.

    That is a conditional expression, an `if` with an `else`, gradients switched by a value.
    """
    tree = parsed(file)
    if tree is None:
        return False
    scope = innermost(tree, line)
    for node in ast.walk(scope):
        if covers(node, line):
            if isinstance(node, ast.IfExp) or (isinstance(node, ast.If) and node.orelse):
                return True
            if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "set_grad_enabled":
                return not all(isinstance(argument, ast.Constant) for argument in node.args)
    return False


def joined(trace: Trace) -> Trace:
    """Let numbers that no operator is known to use flow to where the source uses them."""
    used = {value for op in trace.ops for value in op.inputs}
    lines: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for op in trace.ops:
        for value in op.outputs:
            if trace.values[value].number and value not in used:
                for file, line in places(op):
                    for user in carried(file, line):
                        lines[file, user].append((op.index, value))
    if not lines:
        return trace
    ops = []
    for op in trace.ops:
        more = [value for index, value in lines.get((op.file or "", op.line or 0), ()) if index < op.index]
        ops.append(replace(op, inputs=(*op.inputs, *more)) if more else op)
    return replace(trace, ops=tuple(ops))
