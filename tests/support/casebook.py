"""The cases of tests/cases: each script, and what has to be said about it (README.md there explains)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10: pytest brings it
    import tomli as tomllib

FOLDER = Path(__file__).parent.parent / "cases"
PLACES = ("rank", "module", "parameter", "op")


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    One script and what has to be said about it.

    `where` has the accepted values of a finding's fields, `missed` why a fault isn't found today.
    """

    slug: str
    source: str
    file: Path
    ranks: int = 1
    level: str = ""
    silent: bool = False
    expect: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    by_step: int = 0
    early_ok: bool = False
    early_by: int = 0
    options: tuple[str, ...] = ()
    missed: str = ""
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def lines(file: Path, also: tuple[str, ...]) -> tuple[int, ...]:
    """Return the lines to blame: the one that is marked, and those that contain a text."""
    text = list(enumerate(file.read_text(encoding="utf-8").splitlines(), 1))
    (marked,) = (number for number, line in text if line.endswith("# culprit"))
    others = {part: {number for number, line in text if part in line} for part in also}
    assert all(others.values()), f"{file.name}: no line contains one of {others}"
    return tuple(sorted({marked}.union(*others.values())))


def read(slug: str, table: Mapping[str, Any]) -> Case:
    """Read one table. Raises `AssertionError` or `TypeError` where it makes no sense."""
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    file = FOLDER / f"{slug}.py"
    where = {}
    for place in PLACES:
        if (value := rest.pop(place, None)) is not None:
            where[place] = value if isinstance(value, tuple) else (value,)
    also = rest.pop("line_also", ())
    if rest.pop("line", False):
        where["line"] = lines(file, also)
    case = Case(slug=slug, file=file, where=where, **rest)
    assert case.silent != bool(case.expect), f"{slug}: either silent = true or expect = [...]"
    return case


def cases() -> list[Case]:
    """Read all cases. A script that has no table is a mistake."""
    tables = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))
    scripts = {file.stem for file in FOLDER.glob("*.py") if not file.name.startswith("test_")}
    assert scripts == set(tables), scripts ^ set(tables)
    return [read(slug, table) for slug, table in tables.items()]
