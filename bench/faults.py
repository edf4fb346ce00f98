"""
The fault table of docs/faults.md: each fault in one rank of a real training, many times.

    python bench faults [--where machine,cluster] [--times 20] [--ranks 2,4] [--only sigkill,os_exit]
                        [--at-once 1] [--write]

The rank and the step at which it happens are drawn at random. All times count from the fault's own
beginning. On this machine it is `stepwarden run`; on a cluster two pods under torchrun, on the cluster
that `KEEP_CLUSTER=1 make test-cluster` leaves running. `--write` puts the rows into docs/faults.md, in
the place of those of the same fault, place and number of ranks.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product, repeat
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "cluster")]

PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- table: python bench faults --write -->\n", "<!-- end of the table -->\n"
COLUMNS = (
    "fault",
    "where",
    "ranks",
    "finding",
    "named right",
    "in the last rank's log, s",
    "finding shown, s",
    "all ranks ended, s",
    "what one sees",
)
WHERE = ("machine", "cluster")
KEY = 3  # columns that tell a row from others


def main(options: Sequence[str] | None = None) -> int:
    """Try the faults, and print the table's rows as they come; 1: one was not named right."""
    from faultbook import FAULTS  # noqa: PLC0415 - found by the path above

    parser = argparse.ArgumentParser("bench faults", description=__doc__)
    parser.add_argument("--where", default=",".join(WHERE))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=1, help="so many trials side by side")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(options)
    only = set(filter(None, given.only.split(",")))
    wrong = False
    faults = [fault for fault in FAULTS if not only or fault.name in only]
    for where, ranks, fault in product(given.where.split(","), map(int, given.ranks.split(",")), faults):
        if where not in fault.where:
            continue
        with ThreadPoolExecutor(given.at_once) as pool:
            seen = list(pool.map(once, repeat(fault, given.times), repeat(where), repeat(ranks)))
        line = row(fault, where, ranks, seen)
        wrong |= not all(right(fault, *each) for each in seen)
        print("| " + " | ".join(line) + " |", flush=True)
        if given.write:
            write(line)
    return int(wrong)


def once(fault: Any, where: str, ranks: int) -> tuple[int | None, Any]:
    """Try a fault at a random step of a random rank."""
    rank: int | None = random.randrange(ranks)  # noqa: S311 - no secret
    if fault.name == "cut":
        rank = ranks - 1  # of the pod whose link it is
    step = random.randint(*fault.begins)  # noqa: S311 - no secret
    seen = trial(where, fault, ranks=ranks, rank=rank, step=step).play()
    rank = rank if fault.blamed else None
    if not right(fault, rank, seen):
        print(f"{fault.name}: rank {rank} was meant, found {seen.kind} of rank {seen.rank}: {seen.message}")
        print("\n".join(f"    {line}" for line in seen.lines[-60:]), flush=True)
    return rank, seen


def trial(where: str, fault: Any, **rest: Any) -> Any:
    """Begin a trial."""
    import faulttrial  # noqa: PLC0415 - found by the path above
    from support import faults  # noqa: PLC0415

    if where == "machine":
        return faulttrial.Trial(fault, **rest)
    kube = cluster()
    return faults.Trial(kube, kube.at("stepwarden-system"), fault, **rest)


@cache
def cluster() -> Any:
    """Return the cluster's default namespace."""
    from support.kube import Kube, harness  # noqa: PLC0415 - found by the path above

    return Kube(harness("up"), f"{harness('build')}:{Path(sys.executable).parent}", "default")


def right(fault: Any, rank: int | None, seen: Any) -> bool:
    """Whether the fault was named, and the rank."""
    return (seen.kind, seen.rank) == (fault.kind, rank)


def row(fault: Any, where: str, ranks: int, outcomes: Sequence[tuple[int | None, Any]]) -> list[str]:
    """Make a row of the table."""
    named, times = [seen for rank, seen in outcomes if right(fault, rank, seen)], len(outcomes)
    last = [max(seen.told.values()) for seen in named if len(seen.told) >= ranks - 1]
    message = named[0].message.replace("|", "\\|").replace(f"{ROOT}/", "") if named else ""
    return [
        f"{fault.what} (`{fault.name}`)",
        where,
        str(ranks),
        f"`{fault.kind}`",
        f"{len(named)} of {times}",
        spread(last, times) if fault.told else "-",
        spread((seen.found for seen in named if seen.found is not None), times),
        "lives on" if fault.lives else spread((seen.ended for seen in named), times),
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


def write(line: Sequence[str]) -> None:
    """Put a row into the page's table, in the place of the one of the same fault, place and ranks."""
    from faultbook import FAULTS  # noqa: PLC0415 - found by the path above

    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table, rest = rest.split(END)
    known = [one[2:-2].split(" | ") for one in table.splitlines()[2:]]
    faults = [f"{fault.what} (`{fault.name}`)" for fault in FAULTS]
    rows = [one for one in known if one[:KEY] != list(line[:KEY]) and one[0] in faults] + [list(line)]
    rows.sort(key=lambda one: (WHERE.index(one[1]), one[2], faults.index(one[0])))
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    text = "".join("| " + " | ".join(one) + " |\n" for one in lines)
    PAGE.write_text(head + BEGIN + text + END + rest, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
