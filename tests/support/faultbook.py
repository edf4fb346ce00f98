"""The faults that are tried, and what is to be found of each: docs/faults.md is made of them."""

from dataclasses import dataclass

MACHINE, CLUSTER = "machine", "cluster"
NO_ROOM, NO_HUB, NO_SIDECAR, NO_OPERATOR = "no room", "no hub", "no sidecar", "no operator"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """
    One fault in one rank of a training.

    `kind` is the finding that names it. `lives` says that the rank lives on, so that only a person, or the
    fault's own end, ends the run. `blamed`: one rank is to blame. `way` is what the trainer does, where that
    is not of the fault's own name; "" where it is done to the rank from outside. `beside` is what is broken
    already when it begins. `where` it can be tried: on this machine, on a cluster.
    """

    name: str
    what: str
    kind: str
    lives: bool = False
    blamed: bool = True
    steps: int = 100
    way: str | None = None
    beside: str = ""
    where: tuple[str, ...] = (MACHINE, CLUSTER)

    @property
    def told(self) -> bool:
        """Whether the other ranks are told of it: not of one that is slow."""
        return self.kind != "RankStraggling"

    @property
    def rooted(self) -> bool:
        """Whether only root can put it into a training on this machine: it mounts, or limits memory."""
        return self.beside == NO_ROOM or self.name == "oom"

    @property
    def begins(self) -> tuple[int, int]:
        """The first and the last step at which it may begin: later, where something breaks before."""
        return (30, 60) if self.beside else (6, 20)


FAILED = (
    Fault(name="raise", what="an uncaught exception with a cause", kind="RankFailed"),
    Fault(name="hook", what="an exception in a hook of the backward pass", kind="RankFailed"),
    Fault(name="worker", what="an exception in a DataLoader worker", kind="RankFailed"),
    Fault(name="thread", what="an exception in another thread", kind="RankFailed", lives=True),
    Fault(name="sys_exit", what="`sys.exit(3)`", kind="RankFailed"),
    Fault(name="os_exit", what="`os._exit(5)`", kind="RankFailed"),
    Fault(name="segfault", what="a segmentation fault", kind="RankFailed"),
    Fault(name="abort", what="`abort()` in a library", kind="RankFailed"),
    Fault(name="sigkill", what="SIGKILL", kind="RankFailed"),
    Fault(name="oom", what="the kernel's out-of-memory killer", kind="RankFailed"),
    Fault(name="container", what="a container killed whole", kind="RankFailed", way="", where=(CLUSTER,)),
    Fault(name="clock", what="an exception in a rank whose clock is an hour off", kind="RankFailed"),
)
HUNG = (
    Fault(name="sigstop", what="SIGSTOP: the process stands still", kind="RankHung", lives=True),
    Fault(name="sleep", what="a rank that sleeps in its forward", kind="RankHung", lives=True),
    Fault(name="timeout", what="a rank for which a collective timed out, 6 s", kind="RankHung"),
    Fault(
        name="unmatched",
        what="a rank that is in another collective",
        kind="RankHung",
        lives=True,
        blamed=False,
    ),
    Fault(
        name="cut",
        what="the link between two pods is down",
        kind="RankHung",
        lives=True,
        way="",
        steps=1000,
        where=(CLUSTER,),
    ),
)
SLOW = (
    Fault(
        name="straggle",
        what="a rank that is slow by its own work",
        kind="RankStraggling",
        lives=True,
        steps=400,
    ),
)
BESIDE = (
    Fault(
        name="raise_no_room",
        what="an exception, no room left where the sockets are",
        kind="RankFailed",
        way="raise",
        beside=NO_ROOM,
    ),
    Fault(
        name="sigkill_no_room",
        what="SIGKILL, no room left where the sockets are",
        kind="RankFailed",
        way="sigkill",
        beside=NO_ROOM,
    ),
    Fault(
        name="raise_no_hub",
        what="an exception, the hub killed some seconds before",
        kind="RankFailed",
        way="raise",
        beside=NO_HUB,
    ),
    Fault(
        name="raise_no_sidecar",
        what="an exception, a sidecar that is not the hub killed some seconds before",
        kind="RankFailed",
        way="raise",
        beside=NO_SIDECAR,
        where=(CLUSTER,),
    ),
    Fault(
        name="sigkill_no_operator",
        what="SIGKILL, the operator killed some seconds before",
        kind="RankFailed",
        way="sigkill",
        beside=NO_OPERATOR,
        where=(CLUSTER,),
    ),
)
FAULTS = FAILED + HUNG + SLOW + BESIDE
