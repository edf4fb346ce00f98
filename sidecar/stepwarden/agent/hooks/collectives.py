"""
Whether this thread is inside of a collective, how many it has begun, and for how long it has waited in them.

The methods of torch's process groups and of their handles are wrapped, and not its Python functions: those
stay what torch.compile knows them as, their warnings blame the user's line, and object collectives, sharded
data parallelism and batched sends all come through here. Of functional collectives, as tensor parallelism
uses them, only the waiting does; of what the reducer of DistributedDataParallel begins, nothing. A call of
another thread is left alone.
"""

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from stepwarden.agent.importing import AfterImport

METHODS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_single": "all_to_all_single",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "gather_into_tensor": "gather",
    "gather_single": "gather",
    "monitored_barrier": "monitored_barrier",
    "recv": "recv",
    "recv_anysource": "recv",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "scatter": "scatter",
    "send": "send",
}
"""By the methods of a ProcessGroup, of any torch since 2.4, what a user calls them."""

OTHERS: Mapping[str, str] = {"_broadcast_coalesced": "broadcast"}
FUNCTIONAL = "torch.distributed._functional_collectives"


class Collectives:
    """
    The collectives of one thread, as its Python code calls them.

    `inside` is the name of the one it is in and when it entered (`time.perf_counter`), `count` how many
    it has begun, `seconds` the sum of those inside: gloo waits there for its peers, NCCL only enqueues.
    """

    def __init__(self) -> None:
        """Watch the thread that makes this."""
        self.thread = threading.get_ident()
        self.inside: tuple[str, float] | None = None
        self.count = 0
        self.seconds = 0.0
        self.last = ""

    def begun(self) -> int:
        """
        Return how many collectives have begun: the default group's own number where it is larger.

        That one counts what C++ begins as well. Both only grow, alike on ranks that do the same.
        """
        try:
            group: Any = torch.distributed.group.WORLD
            number = group._get_sequence_number_for_group() if group is not None else 0  # noqa: SLF001 - public nowhere
        except (AttributeError, RuntimeError, ValueError):
            number = 0
        return max(self.count, number)

    def install(self) -> Callable[[], None]:
        """Wrap what this torch has; return what undoes it. Does nothing where torch has no collectives."""
        if not torch.distributed.is_available():
            return lambda: None
        group, handle = torch.distributed.ProcessGroup, torch.distributed.Work
        undo = [self.replace(group, method) for method in METHODS if hasattr(group, method)]
        undo.append(self.replace(handle, "wait"))
        if hasattr(torch.distributed, "_broadcast_coalesced"):  # of DistributedDataParallel's buffers
            undo.append(self.replace(torch.distributed, "_broadcast_coalesced"))
        undo.append(self.when_imported(undo))

        def put_back() -> None:
            for one in undo:
                one()

        return put_back

    def when_imported(self, undo: list[Callable[[], None]]) -> Callable[[], None]:
        """Wrap what waits for functional collectives, once the program uses them: torch imports it then."""

        def loaded() -> None:
            with contextlib.suppress(AttributeError):
                undo.append(self.replace(sys.modules[FUNCTIONAL], "wait_tensor"))

        if FUNCTIONAL in sys.modules:
            loaded()
            return lambda: None
        finder = AfterImport(FUNCTIONAL, loaded)
        sys.meta_path.insert(0, finder)

        def forget() -> None:
            sys.meta_path[:] = [other for other in sys.meta_path if other is not finder]

        return forget

    def replace(self, owner: Any, method: str) -> Callable[[], None]:
        """Put a wrapper in the place of a method; return what puts back the very object that was there."""
        original = vars(owner).get(method, getattr(owner, method))
        wrapper = self.wrap(getattr(owner, method), METHODS.get(method, OTHERS.get(method, "")))
        setattr(owner, method, wrapper)

        def undo() -> None:
            if getattr(owner, method) is wrapper:
                setattr(owner, method, original)

        return undo

    def wrap(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return what stands in the place of a method; without a name it waits for the last one begun."""

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self.inside or threading.get_ident() != self.thread:
                return original(*args, **kwargs)
            if name:
                self.count += 1
                self.last = name
            entered = time.perf_counter()
            self.inside = (name or self.last, entered)
            try:
                return original(*args, **kwargs)
            finally:
                self.inside = None
                self.seconds += time.perf_counter() - entered

        return watched
