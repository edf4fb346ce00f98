"""
The fault table of docs/faults.md: each fault in one rank of a real training, many times.

    python bench faults [--times 20] [--ranks 2,4] [--only sigkill,os_exit] [--write]

The rank and the step at which it happens are drawn at random. All times count from the fault's own
beginning. `--write` puts the table into docs/faults.md.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- table: python bench faults --write -->\n", "<!-- end of the table -->\n"
COLUMNS = (
    "fault",
    "ranks",
    "finding",
    "named right",
    "in the last rank's log, s",
    "all ranks ended, s",
    "what one sees",
)


def main(options: Sequence[str] | None = None) -> int:
    """Try the faults, and print the table's rows as they come."""
    from faultbook import FAULTS  # noqa: PLC0415 - found by the path above

    parser = argparse.ArgumentParser("bench faults", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(options)
    only = set(filter(None, given.only.split(",")))
    rows = []
    for fault in FAULTS:
        for ranks in map(int, given.ranks.split(",")):
            if not only or fault.name in only:
                rows.append(row(fault, ranks, [once(fault, ranks) for _ in range(given.times)]))
                print("| " + " | ".join(rows[-1]) + " |", flush=True)
    if given.write:
        write(rows)
    return 0


def once(fault: Any, ranks: int) -> tuple[int | None, Any]:
    """Try a fault at a random step of a random rank."""
    from faulttrial import Trial  # noqa: PLC0415 - found by the path above

    rank: int | None = random.randrange(ranks)  # noqa: S311 - no secret
    seen = Trial(fault, ranks=ranks, rank=rank, step=random.randint(6, 20)).play()  # noqa: S311 - no secret
    rank = rank if fault.blamed else None
    if (seen.kind, seen.rank) != (fault.kind, rank):
        print(f"{fault.name}: rank {rank} was meant, found {seen.kind} of rank {seen.rank}: {seen.message}")
        print("\n".join(f"    {line}" for line in seen.lines[-60:]), flush=True)
    return rank, seen


def row(fault: Any, ranks: int, outcomes: Sequence[tuple[int | None, Any]]) -> list[str]:
    """Make a row of the table."""
    right = [seen for rank, seen in outcomes if (seen.kind, seen.rank) == (fault.kind, rank)]
    last = [max(seen.told.values()) for seen in right if len(seen.told) >= ranks - 1]
    ended = [seen.ended for seen in right if seen.ended is not None]
    message = right[0].message.replace("|", "\\|").replace(f"{ROOT}/", "") if right else ""
    return [
        f"{fault.what} (`{fault.name}`)",
        str(ranks),
        f"`{fault.kind}`",
        f"{len(right)} of {len(outcomes)}",
        spread(last, len(outcomes)) if fault.kind != "RankStraggling" else "-",
        "lives on" if fault.lives else spread(ended, len(outcomes)),
        f"{message:.160}",
    ]


def spread(seconds: Iterable[float], times: int) -> str:
    """Put the median and the 95th percentile; and how often there was none."""
    found = sorted(seconds)
    if not found:
        return "never"
    p95 = found[min(len(found) - 1, int(0.95 * len(found)))]
    missing = f", {times - len(found)} missing" if len(found) < times else ""
    return f"{statistics.median(found):.2f}, p95 {p95:.2f}{missing}"


def write(rows: Sequence[Sequence[str]]) -> None:
    """Put the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    table = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    PAGE.write_text(head + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
