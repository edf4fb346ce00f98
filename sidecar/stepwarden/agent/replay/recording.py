"""A replayed call as the recorder sees it, put as steps for the choice of the culprit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from stepwarden.agent.looks import names
from stepwarden.agent.replay import magnitude, tree
from stepwarden.agent.trace.recorder import Recorder
from stepwarden.probes import birth
from stepwarden.probes.birth import Eaten, Step

if TYPE_CHECKING:
    from torch import Tensor, nn


class Recording:
    """The recording of one call of a root module."""

    def __init__(self, root: nn.Module) -> None:
        """Begin with nothing."""
        self.root = root
        self.recorder = Recorder(look=True)
        self.arguments: dict[int, str] = {}
        self.steps: list[Step] = []
        self.makers: dict[int, int] = {}
        self.producers: dict[int, int] = {}

    def called_with(self, args: Any, kwargs: Any) -> None:
        """Note what the root is called with."""
        for index, tensor in enumerate(tree.tensors((args, kwargs))):
            self.arguments[self.recorder.book.values.read(tensor)[0]] = str(index)

    def __enter__(self) -> Self:
        """Begin to record."""
        self.recorder.put_on()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        self.recorder.take_off()

    def finish(self) -> None:
        """Put what was recorded as steps, and note which operator made which of autograd's nodes."""
        trace = self.recorder.trace([self.root])
        parameters = frozenset(names.names([self.root]).values())
        self.steps = birth.steps(trace, self.arguments, parameters)
        self.producers = {value: op.index for op in trace.ops for value in op.outputs}
        self.makers = {number: op.index for op in trace.ops for number in range(*op.nodes)}

    def eaten(self, tensor: Tensor) -> Eaten:
        """Say what a result of the call holds, and which operator made it."""
        value = self.recorder.book.values.last(tensor)
        op = None if value is None else self.producers.get(value)
        return Eaten(largest=magnitude.signed(tensor), op=op)
