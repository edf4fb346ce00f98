"""Which of torch's collectives a stack is in: pure, for the rank itself and for who reads of its crash."""

from collections.abc import Callable, Iterable

COLLECTIVES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/rendezvous.py",
    "/torch/distributed/utils.py",
)
BETWEEN = ("/torch/distributed/c10d_logger.py", "/torch/_ops.py")  # stand around torch's own functions


def collective(calls: Iterable[tuple[str, str]], is_ours: Callable[[str], bool]) -> str:
    """
    Return the collective as the user's code names it, as all_gather_object; "" where there is none.

    `calls` are files and names, innermost call first; `is_ours` tells a file of this package.
    """
    found = ""
    for file, name in calls:
        if file.endswith(COLLECTIVES):
            found = found if name.startswith("__") else name
        elif not file.endswith(BETWEEN) and not is_ours(file):
            break
    return found.lstrip("_")
