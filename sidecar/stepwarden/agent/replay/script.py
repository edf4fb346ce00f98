"""
The user's script in a bundle: taken along as text, and defined again without its training.

Only what classes and functions need is run again: imports, definitions, and the assignments of names that
they use. Loops, `if __name__` and calls are left out.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
ASSIGNING = (ast.Assign, ast.AnnAssign)


def own() -> tuple[str, str] | None:
    """Return the path and the text of the script that runs, None where there is none."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return None if path is None else (str(Path(path).resolve()), Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def define(path: str, text: str) -> types.ModuleType:
    """Make a module of a script's definitions, and let it be `__main__`. What fails is left out."""
    module = types.ModuleType("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.insert(0, folder)
    lines = text.splitlines(keepends=True)
    linecache.cache[path] = (len(text), None, lines, path)
    for statement in needed(ast.parse(text)):
        body = ast.Module(body=[statement], type_ignores=[])
        try:
            exec(compile(body, path, "exec"), vars(module))  # noqa: S102 - a bundle is code, and its reader was told so
        except Exception:  # noqa: BLE001, S112 - what is missing then is said when the model is read
            continue
    return module


def needed(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that definitions need, in their order."""
    kept: set[int] = set()
    names: set[str] = set()
    for index, statement in enumerate(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom, *DEFINING)):
            kept.add(index)
            names |= set(used(statement))
    changed = True
    while changed:
        changed = False
        for index, statement in enumerate(tree.body):
            if index not in kept and isinstance(statement, ASSIGNING) and names & set(targets(statement)):
                kept.add(index)
                names |= set(used(statement))
                changed = True
    return [statement for index, statement in enumerate(tree.body) if index in kept]


def used(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement reads."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id


def targets(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns."""
    for part in ast.walk(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
