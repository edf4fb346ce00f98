"""The random states of a process: taken in a few microseconds before each call, and put back."""

from __future__ import annotations

import ctypes
import random
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MT19937 = 625 * 4  # bytes of numpy's global generator: 624 words and a position


@dataclass(frozen=True, slots=True)
class Randomness:
    """
    The states of torch's generators (the CPU's, and those of CUDA devices by index), Python's, numpy's.

    `numpy` is the raw state of its global generator: reading it by its own function takes 40 us.
    """

    cpu: Tensor
    cuda: dict[int, Tensor]
    python: Any
    numpy: bytes | None

    def restore(self) -> None:
        """Put the states back."""
        torch.set_rng_state(self.cpu)
        for index, state in self.cuda.items():
            torch.cuda.set_rng_state(state, index)
        random.setstate(self.python)
        numpy = sys.modules.get("numpy")
        if self.numpy is not None and numpy is not None:
            name, key, _, gauss, cached = numpy.random.get_state()
            words = numpy.frombuffer(self.numpy, dtype=key.dtype)
            numpy.random.set_state((name, words[:-1].copy(), int(words[-1]), gauss, cached))


def take(*, everywhere: bool = False) -> Randomness:
    """Take the states: of all CUDA devices, or of the current one. Waits for no device."""
    cuda = {}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        devices = range(torch.cuda.device_count()) if everywhere else (torch.cuda.current_device(),)
        cuda = {index: torch.cuda.get_rng_state(index) for index in devices}
    return Randomness(torch.get_rng_state(), cuda, random.getstate(), of_numpy())


class Numpy:
    """Where numpy's global generator keeps its state: asked once, as to ask takes longer than to read."""

    generator: Any = None
    address = 0


def of_numpy() -> bytes | None:
    """Return numpy's global state, where numpy is loaded and its generator is the usual one."""
    numpy = sys.modules.get("numpy.random.mtrand")
    if numpy is None:
        return None
    generator: Any = getattr(getattr(numpy, "_rand", None), "_bit_generator", None)
    if generator is not Numpy.generator:
        usual = type(generator).__name__ == "MT19937"
        Numpy.generator, Numpy.address = generator, generator.ctypes.state_address if usual else 0
    return ctypes.string_at(Numpy.address, MT19937) if Numpy.address else None
