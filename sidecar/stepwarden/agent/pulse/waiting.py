"""Which collective a stack waits in: by its Python name, and where C++ begins it without one."""

from collections.abc import Sequence
from types import CodeType

from stepwarden.agent.pulse import stack
from stepwarden.calls import collective

ENGINE = ("/torch/autograd/graph.py", "_engine_run_backward")


def called(codes: Sequence[CodeType]) -> str:
    """Return the collective as the user's code names it, as all_gather_object; "" where there is none."""
    return collective(((code.co_filename, code.co_name) for code in reversed(codes)), stack.is_ours)


def in_reducer(codes: Sequence[CodeType]) -> bool:
    """
    Whether a backward pass stands in C++: no Python of a custom function or a hook is at work.

    A thread that stands still there once all gradients are accumulated waits for the reducer of
    DistributedDataParallel.
    """
    return bool(codes) and codes[-1].co_name == ENGINE[1] and codes[-1].co_filename.endswith(ENGINE[0])
