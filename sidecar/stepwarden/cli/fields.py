"""Reading fields of an object that a person wrote: each of the type that it must have, or a sentence."""

from collections.abc import Mapping
from typing import Any, TypeVar

from stepwarden.cli.failure import UsageError

Value = TypeVar("Value")

NAMES: Mapping[type, str] = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}


def field(of: Mapping[str, Any], name: str, where: str, default: Value) -> Value:
    """Return a field; the default (which says its type) where it is missing or null."""
    value = of.get(name)
    if value is None:
        return default
    wanted = type(default)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        message = f"{where}.{name} must be {NAMES[wanted]}, not {value!r:.60}"
        raise UsageError(message)
    return value


def mappings(of: Mapping[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """Return a field that is a list of mappings."""
    items: list[Any] = field(of, name, where, [])
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            message = f"{where}.{name}[{number}] must be a mapping, not {item!r:.60}"
            raise UsageError(message)
    return items


def strings(of: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """Return a field that is a list of strings."""
    items: list[Any] = field(of, name, where, [])
    for number, item in enumerate(items):
        if not isinstance(item, str):
            message = f"{where}.{name}[{number}] must be a string, not {item!r:.60}: put it in quotes"
            raise UsageError(message)
    return tuple(items)


def known(of: Mapping[str, Any], names: frozenset[str], where: str) -> None:
    """Refuse fields that there are none of."""
    if unknown := sorted(str(name) for name in set(of) - names):
        message = f"unknown field {unknown[0]!r} in {where}: it has {', '.join(sorted(names))}"
        raise UsageError(message)
