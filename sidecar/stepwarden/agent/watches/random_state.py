"""Watches whether the seed, the threads and the determinism that the run asked for are in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stepwarden.agent.reproducibility import IN_FORCE
from stepwarden.agent.watch import Watch
from stepwarden.probes import random_state_unset
from stepwarden.probes.random_state_unset import RandomState, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepwarden.agent.watch import Host, Moment


class RandomStateWatch(Watch):
    """Looks at torch's state at the first step, and every so many steps."""

    kinds = (random_state_unset.KIND,)

    def __init__(self, host: Host) -> None:
        """Begin."""
        super().__init__(host)
        self.every = host.environment.probes.probes[random_state_unset.KIND]["every"]
        self.looked: int | None = None

    def boundary(self, moment: Moment) -> Iterable[object]:
        """Look, where something is asked for and it is time. Reads no random number."""
        began = self.looked is None
        if not IN_FORCE.asked.asked or (self.looked is not None and moment.step - self.looked < self.every):
            return ()
        self.looked = moment.step
        return (RandomState(settings=tuple(self.settings()), began=began),)

    def settings(self) -> Iterator[Setting]:
        """Yield each thing that was asked for."""
        asked = IN_FORCE.asked
        if asked.seed is not None:
            yield from self.seeds(asked.seed)
        if asked.threads is not None:
            threads = torch.get_num_threads()
            yield setting("torch.set_num_threads", "torch.get_num_threads()", asked.threads, threads)
        if asked.deterministic:
            on = torch.are_deterministic_algorithms_enabled()
            name = "torch.are_deterministic_algorithms_enabled()"
            yield setting("torch.use_deterministic_algorithms", name, asked=True, found=on)
            benchmark: bool = torch.backends.cudnn.benchmark
            yield setting("", "torch.backends.cudnn.benchmark", asked=False, found=benchmark)

    @staticmethod
    def seeds(seed: int) -> Iterator[Setting]:
        """Yield the seeds of torch, numpy and Python."""
        call = "torch.seed" if "torch.seed" in IN_FORCE.calls else "torch.manual_seed"
        yield setting(call, "torch.initial_seed()", seed, torch.initial_seed(), seed=True)
        for name in ("numpy.random.seed", "random.seed"):
            if name in IN_FORCE.calls:
                value = IN_FORCE.calls[name][0]
                if value is None or isinstance(value, int):
                    yield setting(name, f"the seed of {name.removesuffix('.seed')}", seed, value, seed=True)
        text = IN_FORCE.hash_seed
        found = int(text) if text is not None and text.isdecimal() else None
        if found is None:  # another number repeats the order in sets as well
            yield setting("", "PYTHONHASHSEED", seed, found, seed=True)


def setting(call: str, name: str, asked: int | bool, found: Any, *, seed: bool = False) -> Setting:  # noqa: FBT001 - what is asked for may be a switch
    """Make a setting, with the line of the program's call that set it last."""
    _, file, line = IN_FORCE.calls.get(call, (None, None, None))
    return Setting(name=name, asked=asked, found=found, seed=seed, file=file, line=line)
