"""What `stepwarden check` asks for: a gradcheck of what it names, and the end after so many steps."""

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.optim import Optimizer

from stepwarden.agent.environment import Environment
from stepwarden.agent.looks import gradcheck, names
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.watch import Host, Moment, Watch
from stepwarden.wire import ENV_CHECK, Note

NOT_CALLED = "no module or Function of that name was called in the first step"


class Checking(Watch):
    """Made only where it is asked for; it changes the process, which lives for the check alone."""

    @classmethod
    def wanted(cls, environment: Environment) -> bool:  # noqa: ARG003 - as all watches have it
        """Whether this process lives for a check."""
        return ENV_CHECK in os.environ

    def __init__(self, host: Host) -> None:
        """Read what is asked for."""
        super().__init__(host)
        check = json.loads(os.environ[ENV_CHECK])
        self.steps: int = check["steps"]
        self.asked: dict[str, Callable[[], dict[str, Any]] | None] = dict.fromkeys(
            check["gradcheck"] if host.environment.rank == 0 else ()
        )
        self.handles: list[Any] = []

    def install(self) -> Iterable[Callable[[], object]]:
        """Listen to the calls of custom Functions, where one may be named."""
        if not self.asked:
            return ()
        own = Function.__dict__.get("apply")

        def listening(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
            if cls.__name__ in self.asked and self.asked[cls.__name__] is None:
                copies = [gradcheck.in_double(arg) for arg in args]
                self.asked[cls.__name__] = functools.partial(gradcheck.of_function, cls, copies)
            if own:
                return own.__get__(None, cls)(*args, **kwargs)
            return super(Function, cls).apply(*args, **kwargs)  # type: ignore[misc]  # of its base in C

        Function.apply = classmethod(listening)

        def undo() -> None:
            if own:
                Function.apply = own
            else:
                del Function.apply

        return (undo,)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Listen to the first call of each named module."""
        for root in names.owners(trained(optimizer)) if self.asked else ():
            for name, module in root.named_modules():
                if names.clean(name) in self.asked:
                    keep = functools.partial(self.called, names.clean(name))
                    self.handles.append(module.register_forward_pre_hook(keep, with_kwargs=True))

    def called(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what a module was first called with."""
        if self.asked[name] is None and torch.is_grad_enabled():
            copies = [gradcheck.in_double(arg) for arg in args]
            self.asked[name] = functools.partial(gradcheck.of_module, module, copies, dict(kwargs))

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Check what was called in the first step, once."""
        for name, run in self.asked.items() if moment.step == 0 else ():
            for handle in self.handles:
                handle.remove()
            body = run() if run else {"ok": None, "message": NOT_CALLED}
            self.host.tell(Note(rank=0, topic="gradcheck", body={"name": name, **body}))
        return ()

    def stepped(self, moment: Moment) -> Iterable[object]:
        """End the process behind the last step; `SystemExit` passes the agent's guards."""
        if moment.step >= self.steps:
            raise SystemExit(0)
        return ()
