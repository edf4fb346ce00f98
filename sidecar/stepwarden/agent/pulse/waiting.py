"""Which collective a stack waits in, where its own wrappers do not say it: those that C++ begins."""

from collections.abc import Sequence
from types import CodeType

PYTHONS = "/torch/distributed/distributed_c10d.py"
OTHERS = ("/torch/distributed/_functional_collectives.py", "/torch/distributed/rendezvous.py")
LOGGED = "/torch/distributed/c10d_logger.py"  # stands around each of torch's own functions
ENGINE = ("/torch/autograd/graph.py", "_engine_run_backward")


def called(codes: Sequence[CodeType]) -> str:
    """Return the collective as the user's code names it, as all_gather_object; "" where there is none."""
    name = ""
    for code in reversed(codes):
        if code.co_filename.endswith((PYTHONS, *OTHERS)):
            name = code.co_name
        elif name and not code.co_filename.endswith(LOGGED):
            break
    return name


def in_reducer(codes: Sequence[CodeType]) -> bool:
    """
    Whether a backward pass stands in C++: no Python of a custom function or a hook is at work.

    A thread that stands still there once all gradients are accumulated waits for the reducer of
    DistributedDataParallel.
    """
    return bool(codes) and codes[-1].co_name == ENGINE[1] and codes[-1].co_filename.endswith(ENGINE[0])
