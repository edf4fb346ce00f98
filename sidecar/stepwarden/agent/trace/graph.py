"""The autograd graph below a tensor."""

from __future__ import annotations

from typing import Any

LIMIT = 20_000  # nodes


def numbers(node: Any) -> list[int]:
    """Return the sequence numbers of the nodes that a backward pass from `node` reaches, sorted."""
    seen = {node}
    waiting = [node]
    while waiting and len(seen) < LIMIT:
        for child, _ in waiting.pop().next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                waiting.append(child)
    return sorted(one._sequence_nr() for one in seen)  # noqa: SLF001 - the only name that a node has


def unimplemented(thing: Any) -> bool:
    """Whether a tensor was made by an operator that has no gradient, and says so only in a warning."""
    node = getattr(thing, "grad_fn", None)
    return node is not None and type(node).__name__ == "CppFunction" and "NotImplemented" in node.name()
