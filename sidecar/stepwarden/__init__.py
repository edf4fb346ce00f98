"""Stepwarden: detect an anomaly of a PyTorch training cheaply, and hold before its damage."""

from collections.abc import Callable
from typing import TypeVar

__version__ = "0.1.0"

SAVING: list[Callable[[], object]] = []  # what the training wants called when it is asked for a checkpoint

Saves = TypeVar("Saves", bound=Callable[[], object])


def on_save(function: Saves) -> Saves:
    """
    Have a function called when the training is asked for a checkpoint: before its pods are deleted.

    It is called in every rank, on the thread that steps the optimizer, at the same step boundary,
    before that step's update. So it may use collectives. Without an agent it is never called.
    """
    SAVING.append(function)
    return function
