"""Which collective a stack waits in: by its Python name, and where C++ begins it without one."""

from collections.abc import Sequence
from types import CodeType

from stepwarden.agent.pulse import stack

COLLECTIVES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/rendezvous.py",
    "/torch/distributed/utils.py",
)
BETWEEN = ("/torch/distributed/c10d_logger.py", "/torch/_ops.py")  # stand around torch's own functions
ENGINE = ("/torch/autograd/graph.py", "_engine_run_backward")


def called(codes: Sequence[CodeType]) -> str:
    """Return the collective as the user's code names it, as all_gather_object; "" where there is none."""
    name = ""
    for code in reversed(codes):
        file = code.co_filename
        if file.endswith(COLLECTIVES):
            name = name if code.co_name.startswith("__") else code.co_name
        elif not file.endswith(BETWEEN) and not stack.is_ours(file):
            break
    return name.lstrip("_")


def in_reducer(codes: Sequence[CodeType]) -> bool:
    """
    Whether a backward pass stands in C++: no Python of a custom function or a hook is at work.

    A thread that stands still there once all gradients are accumulated waits for the reducer of
    DistributedDataParallel.
    """
    return bool(codes) and codes[-1].co_name == ENGINE[1] and codes[-1].co_filename.endswith(ENGINE[0])
