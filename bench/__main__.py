"""
The benchmarks behind docs/benchmarks.md: `python bench NAME [options]`.

Without a name, all of them, one after the other.
"""

import sys
from importlib import import_module

BENCHMARKS = ("agent", "faults", "growth", "locating", "pauses", "scale", "reaction", "soak", "hub")


def main() -> None:
    """Run one benchmark, or all."""
    name, *options = sys.argv[1:] or ["all"]
    if name not in (*BENCHMARKS, "all"):
        message = f"{name!r} is not a benchmark: give one of {', '.join(BENCHMARKS)}, or none for all"
        raise SystemExit(message)
    failed = False
    for each in BENCHMARKS if name == "all" else (name,):
        print(f"== {each}", flush=True)
        failed |= bool(import_module(each).main(options))
    sys.exit(failed)


if __name__ == "__main__":
    main()
