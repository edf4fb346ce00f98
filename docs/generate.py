"""Writes docs/metrics.md from the code; with `--check`, only says whether it is current."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from stepwarden.metrics import Metric, table

PAGE = Path(__file__).with_name("metrics.md")
HEAD = """\
# Metrics

<!-- made by docs/generate.py from the code: change it there -->

Sidecars and operator serve these at `/metrics`, as OpenMetrics where the scraper accepts it.
Where a sidecar knows them, its metrics also have the labels `training_job` and `namespace`.
"""
PARTS = {
    "Sidecar": "stepwarden_sidecar.metrics",
    "Operator": "stepwarden_operator.metrics",
}


def metrics(module: str) -> tuple[Metric, ...]:
    """Return the metrics that a module describes; none where there is no such module."""
    return tuple(import_module(module).METRICS) if find_spec(module) else ()


def page() -> str:
    """Make the page on metrics."""
    parts = [f"## {title}\n\n{table(metrics(module))}" for title, module in PARTS.items() if metrics(module)]
    return "\n".join([HEAD, *parts])


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    if arguments == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        sys.stdout.write("" if current else f"{PAGE} is not current: run docs/generate.py\n")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
