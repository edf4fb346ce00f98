"""
A gradcheck of one module or one custom Function, with the inputs that the training gave it.

In double precision and on shrunk inputs (few samples), on a copy: torch.autograd.gradcheck compares
the analytical gradients with finite differences (its fast mode, one random projection each).
"""

import contextlib
import copy
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

SAMPLES = 2  # that are kept of the first dimension
INPUT = re.compile(r"with respect to input (\d+)")
SEED = 0  # of each run, so that dropout is the same function in all of them


def of_module(module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Check a module for its floating inputs and its trainable parameters."""
    twin = copy.deepcopy(module).double().cpu()
    names = [name for name, parameter in twin.named_parameters() if parameter.requires_grad]
    weights = [dict(twin.named_parameters())[name].detach() for name in names]

    def run(inputs: Sequence[Any], *values: Tensor) -> Any:
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(twin, given, tuple(inputs), in_double(kwargs))

    return check(run, args, dict(zip(names, weights, strict=True)))


def of_function(function: type[torch.autograd.Function], args: Sequence[Any]) -> dict[str, Any]:
    """Check a custom Function for its floating inputs."""
    apply: Callable[..., Any] = function.apply
    return check(lambda inputs: apply(*inputs), args, {})


def check(run: Callable[..., Any], args: Sequence[Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Run the check on shrunk inputs, on whole ones where the code can't take those; say how it went."""
    why = "no run"
    for shrunk in (True, False):
        inputs = [in_double(shrink(arg) if shrunk else arg) for arg in args]
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                run(inputs, *weights.values())
        except Exception as error:  # noqa: BLE001 - the user's code, on inputs that it may refuse
            why = f"{type(error).__name__}: {error}"
            continue
        return compare(run, inputs, weights)
    return {"ok": None, "message": f"it can't be run again in double precision: {why:.300}"}


def compare(run: Callable[..., Any], inputs: Sequence[Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Compare analytical and numerical gradients."""
    places = [index for index, value in enumerate(inputs) if differentiable(value)]
    variables = [inputs[index].clone().requires_grad_() for index in places]
    variables += [weight.clone().requires_grad_() for weight in weights.values()]
    called = [f"argument {index}" for index in places] + list(weights)
    if not variables:
        return {"ok": None, "message": "nothing of it can be differentiated"}

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        given = list(inputs)
        for index, value in zip(places, values, strict=False):
            given[index] = value
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return tuple(filter(differentiable, leaves(run(given, *values[len(places) :]))))

    shapes = [list(value.shape) for value in variables]
    try:
        with torch.enable_grad(), warnings.catch_warnings(), without_slow_mode():
            warnings.simplefilter("ignore")
            torch.autograd.gradcheck(function, tuple(variables), fast_mode=True)
    except Exception as error:  # noqa: BLE001 - what gradcheck says, or the user's backward
        said = " ".join(str(error).partition("The above quantities")[0].split())
        named = INPUT.sub(lambda found: f"with respect to {called[int(found[1])]}", said)
        return {"ok": False, "message": f"{named:.600}", "shapes": shapes}
    return {"ok": True, "message": "analytical and numerical gradients agree", "shapes": shapes}


@contextlib.contextmanager
def without_slow_mode() -> Iterator[None]:
    """Keep gradcheck from whole Jacobians for its message: those of a large module fill the memory."""
    module = sys.modules["torch.autograd.gradcheck"]
    slow = getattr(module, "_run_slow_mode_and_get_error", None)
    if slow is None:
        yield
        return
    setattr(module, slow.__name__, lambda *_args, **_kwargs: "")
    try:
        yield
    finally:
        setattr(module, slow.__name__, slow)


def differentiable(value: object) -> bool:
    """Whether a value is a tensor of floating type."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def leaves(value: Any) -> list[Any]:
    """Return the tensors in a structure of lists, tuples and dicts, in their order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def in_double(value: Any) -> Any:
    """Return a structure with its floating tensors in double precision, detached."""
    if isinstance(value, dict):
        return {key: in_double(item) for key, item in value.items()}
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.double() if value.is_floating_point() else value
    return value


def shrink(value: Any) -> Any:
    """Return a tensor's first few samples."""
    return value[:SAMPLES] if isinstance(value, Tensor) and value.ndim > 1 else value
