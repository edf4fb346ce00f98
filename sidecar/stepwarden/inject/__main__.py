"""
Copies the agent to a folder that a training container then has on its PYTHONPATH.

Run by the init container: `python -m stepwarden.inject DEST`. Twice does what once does.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
PARTS = (
    *(
        "__init__.py",
        "wire.py",
        "encoding.py",
        "pulse.py",
        "replica.py",
        "failure.py",
        "attempt.py",
        "calls.py",
        "policy.py",
        "reproducibility.py",
    ),
    *("agent", "probes", "checkpoint"),
)


def sources() -> Iterator[tuple[Path, Path]]:
    """Yield what is copied, with its place below the destination."""
    yield PACKAGE / "inject" / "sitecustomize.py", Path("sitecustomize.py")
    for part in PARTS:
        for file in [PACKAGE / part] if part.endswith(".py") else sorted((PACKAGE / part).rglob("*.py")):
            yield file, Path("stepwarden") / file.relative_to(PACKAGE)


def copy(destination: Path) -> None:
    """Copy the agent, so that any user can read it. Raises `OSError`."""
    for source, below in sources():
        target = destination / below
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(".new")  # a reader never sees half a file
        shutil.copyfile(source, aside)
        aside.chmod(0o644)
        aside.replace(target)
        if target.parent != destination:
            target.parent.chmod(0o755)


def main() -> int:
    """Copy, or say in one line why not."""
    parser = argparse.ArgumentParser(
        prog="python -m stepwarden.inject", description="Copy the agent to DEST."
    )
    parser.add_argument("destination", metavar="DEST", type=Path, help="a folder for PYTHONPATH")
    destination: Path = parser.parse_args().destination
    try:
        copy(destination)
    except OSError as error:
        sys.stderr.write(f"stepwarden: can't copy the agent to {destination}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
