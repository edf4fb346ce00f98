"""
Asks the training for a checkpoint, and notices that there is one.

All ranks are held at the same boundary then, before its update. Functions of the user's
(`stepwarden.on_save`) and Lightning's trainer save there and then. Who saves by looking at a file, by a
signal or by the Hugging Face Trainer's flag does so after the step: those ranks are let through, all from
the same boundary, and the checkpoint counts once it lies in the folder, or the file was taken away.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import stepwarden
from stepwarden.agent.say import say
from stepwarden.checkpoint.find import candidates
from stepwarden.wire import ENV_CHECKPOINTS, ENV_SAVE_FILE, ENV_SAVE_SIGNAL

TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
MODULE = "transformers.trainer"


class Asking:
    """What was asked of this rank's training, and what it has answered; each by the number of the order."""

    def __init__(self, rank: int, variables: Mapping[str, str] = os.environ) -> None:
        """Begin with nothing asked."""
        self.rank = rank
        self.directory = variables.get(ENV_CHECKPOINTS)
        self.file = Path(variables[ENV_SAVE_FILE]) if variables.get(ENV_SAVE_FILE) else None
        self.signal = variables.get(ENV_SAVE_SIGNAL, "")
        self.asked = self.saved = 0
        self.since = 0.0
        self.prompted = False  # the program has to go on, to see that it is asked

    def ask(self, number: int) -> None:
        """Ask, on the training's own thread. What the training's functions raise is said, and no answer."""
        self.asked, self.since = number, time.time()
        functions: list[Callable[[], object]] = list(stepwarden.SAVING) or self.lightning()
        if not functions:
            self.prompt()
            return
        try:
            for function in functions:
                function()
            self.saved = number
            say(f"rank {self.rank} has saved")
        except Exception as error:  # noqa: BLE001 - the pods go whether it has saved or not
            say(f"rank {self.rank} could not save: {type(error).__name__}: {error}")

    @property
    def lets_through(self) -> bool:
        """Whether this rank is to go on although the others' wait is its own as well."""
        return self.prompted and self.saved < self.asked

    def prompt(self) -> None:
        """Ask by all that a program may look at."""
        self.prompted = True
        if self.file is not None:
            self.file.touch()
        for trainer in living(MODULE, "Trainer"):
            trainer.control.should_save = True
        if self.signal and (number := getattr(signal, self.signal, None)) is not None:
            if signal.getsignal(number) in (signal.SIG_DFL, None):
                say(f"rank {self.rank}: nobody handles {self.signal}, it is not sent: it would end the rank")
            else:
                os.kill(os.getpid(), number)

    def lightning(self) -> list[Callable[[], object]]:
        """Return what saves by Lightning's trainer, where one trains here."""
        found = [trainer for module in TRAINERS for trainer in living(module, "Trainer")]
        return [partial(save_lightning, one, self.directory or ".") for one in found if one.training]

    def look(self) -> int:
        """Return the last order that was answered. Called once a second, off the training's thread."""
        if self.asked > self.saved and self.answered():
            self.saved = self.asked
            say(f"rank {self.rank} has saved")
        return self.saved

    def answered(self) -> bool:
        """Whether a checkpoint is newer than the order, or the program has taken the file away."""
        if self.prompted and self.file is not None and not self.file.exists():
            return True
        found = candidates(Path(self.directory))[:1] if self.directory else []
        return any(self.since < each.time < time.time() - 1.0 for each in found)  # nobody writes it any more


def living(module: str, name: str) -> list[Any]:
    """Return the objects of a class that live in this process; none where its module isn't loaded."""
    cls = getattr(sys.modules.get(module), name, None)
    return [each for each in gc.get_objects() if isinstance(each, cls)] if isinstance(cls, type) else []


def save_lightning(trainer: Any, directory: str) -> None:
    """Save by Lightning, in all ranks."""
    trainer.save_checkpoint(os.path.join(directory, f"stepwarden-step-{trainer.global_step}.ckpt"))  # noqa: PTH118
