"""The faults that are tried, and what is to be found of each: docs/faults.md is made of them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """
    One fault in one rank of a training on this machine.

    `kind` is the finding that names it, None where nothing may be found. `lives` says that the rank
    lives on, so that only a person, or the fault's own end, ends the run. `blamed`: one rank is to blame.
    """

    name: str
    what: str
    kind: str | None
    lives: bool = False
    blamed: bool = True
    steps: int = 60


FAULTS = (
    Fault(name="raise", what="an uncaught exception with a cause", kind="RankFailed"),
    Fault(name="hook", what="an exception in a hook of the backward pass", kind="RankFailed"),
    Fault(name="worker", what="an exception in a DataLoader worker", kind="RankFailed"),
    Fault(name="thread", what="an exception in another thread", kind="RankFailed", lives=True),
    Fault(name="sys_exit", what="`sys.exit(3)`", kind="RankFailed"),
    Fault(name="os_exit", what="`os._exit(5)`", kind="RankFailed"),
    Fault(name="segfault", what="a segmentation fault", kind="RankFailed"),
    Fault(name="abort", what="`abort()` in a library", kind="RankFailed"),
    Fault(name="sigkill", what="SIGKILL", kind="RankFailed"),
    Fault(name="clock", what="an exception in a rank whose clock is an hour off", kind="RankFailed"),
    Fault(name="sigstop", what="SIGSTOP: the process stands still", kind="RankHung", lives=True),
    Fault(name="sleep", what="a rank that sleeps in its forward", kind="RankHung", lives=True),
    Fault(
        name="unmatched",
        what="a rank that is in another collective",
        kind="RankHung",
        lives=True,
        blamed=False,
    ),
    Fault(
        name="straggle",
        what="a rank that is slow by its own work",
        kind="RankStraggling",
        lives=True,
        steps=400,
    ),
)
