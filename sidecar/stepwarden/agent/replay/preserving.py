"""A block after which modules, gradients, random states and switches are as before, to the bit."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from stepwarden.agent.hooks.calls import unwatched
from stepwarden.agent.replay import randomness

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTAINERS = (list, dict, set, OrderedDict)
LARGEST = 1 << 30  # bytes of parameters that are copied: a forward pass that changes them is rare


class Attributes:
    """What hangs on one module: its attributes, and what its plain containers hold."""

    def __init__(self, module: nn.Module) -> None:
        """Take it; parameters and buffers are values of their own."""
        self.module = module
        self.attributes = dict(vars(module))
        self.contents = {
            name: value.copy() for name, value in self.attributes.items() if type(value) in CONTAINERS
        }

    def restore(self) -> None:
        """Put it back: the same objects under the same names."""
        refill(vars(self.module), self.attributes)
        for name, content in self.contents.items():
            refill(self.attributes[name], content)


def refill(container: Any, content: Any) -> None:
    """Give a list, dict or set its former items, where they are no longer the same objects."""
    if isinstance(container, dict):
        held = len(container) == len(content) and all(
            name in container and container[name] is value for name, value in content.items()
        )
        if not held:
            container.clear()
            container.update(content)
    elif isinstance(container, list):
        if [id(item) for item in container] != [id(item) for item in content]:
            container[:] = content
    elif {id(item) for item in container} != {id(item) for item in content}:
        container.clear()
        container.update(content)


def values(modules: Sequence[nn.Module]) -> list[tuple[Tensor, Tensor]]:
    """Copy all buffers, and the parameters unless they are too many."""
    found: dict[int, Tensor] = {}
    parameters = {id(parameter): parameter for module in modules for parameter in module.parameters()}
    if sum(parameter.numel() * parameter.element_size() for parameter in parameters.values()) <= LARGEST:
        found |= parameters
    found |= {id(buffer): buffer for module in modules for buffer in module.buffers()}
    return [(tensor, tensor.detach().clone()) for tensor in found.values() if not tensor.is_meta]


@contextmanager
def silence() -> Iterator[None]:
    """Print nothing: what a model prints in its forward pass was printed already."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextmanager
def preserved(modules: Sequence[nn.Module]) -> Iterator[None]:
    """
    Put all back that a forward and a backward pass of some modules may change.

    Values go back through `.data`, and versions are set back too: a graph that still waits for its
    backward pass must not find what it saved "modified by an inplace operation".
    """
    kept = [Attributes(child) for module in modules for child in module.modules()]
    copies = values(modules)
    gradients = [(parameter, parameter.grad) for module in modules for parameter in module.parameters()]
    before = randomness.take(everywhere=True)
    enabled = torch.is_grad_enabled()
    with ExitStack() as versions:
        for tensor, _ in copies:
            versions.enter_context(_unsafe_preserve_version_counter(tensor))
        try:
            anomalies = torch.autograd.set_detect_anomaly(
                mode=False
            )  # it would end the replay as it did the step
            with warnings.catch_warnings(), unwatched(), silence(), anomalies:
                warnings.simplefilter("ignore")
                yield
        finally:
            torch.set_grad_enabled(enabled)
            for one in kept:
                one.restore()
            for tensor, copy in copies:
                tensor.data.copy_(copy)
            for parameter, gradient in gradients:
                if parameter.grad is not gradient:
                    parameter.grad = gradient
            before.restore()
