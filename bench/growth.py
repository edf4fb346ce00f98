"""
Whether the agent's memory grows: the resident size of a small training over many steps.

    python bench growth [--steps 20000]

Prints the size after a tenth of the steps and after all, with the agent and plainly.
"""

import argparse
from collections.abc import Sequence

from agent import Group, sidecar


def main(options: Sequence[str]) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python bench growth")
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args(options).steps
    with sidecar() as folder:
        for kind in ("plain", "agent"):
            group = Group("small", kind, 1, folder)
            sizes = []
            for last in (steps // 10, steps - steps // 10):
                for _ in range(last):
                    group.ask("step")
                sizes.append(group.ask("memory"))
            group.end()
            print(f"{kind}: {sizes[0]:.1f} MiB after {steps // 10} steps, {sizes[1]:.1f} MiB after {steps}")
