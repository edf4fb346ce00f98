"""Waits for the user's program to import torch (or numpy), and calls back once it has. Imports neither."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from stepwarden.agent.say import say

TORCH = "torch"


class AfterImport(MetaPathFinder):
    """A finder that finds nothing itself, but wraps the loading of one module."""

    def __init__(self, name: str, loaded: Callable[[], None]) -> None:
        """Wait for module `name`, then call `loaded` once."""
        self.name = name
        self.loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for the module, with its loader wrapped."""
        del path, target
        if fullname != self.name:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            if self.name == TORCH:
                say(f"{self.name} is not installed in {sys.executable}: this rank is not watched")
        elif hasattr(spec.loader, "exec_module"):
            self.wrap(spec.loader)
        return spec

    def wrap(self, loader: object) -> None:
        """Put the callback behind a loader's work, for once."""
        load: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[attr-defined]  # seen to exist

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[attr-defined]  # the instance's own, set below
            load(module)
            self.loaded()

        loader.exec_module = exec_module  # type: ignore[attr-defined]  # shadows the class's method


def wait(loaded: Callable[[], None], name: str = TORCH) -> None:
    """Call back once a module is there. Only one can wait for each."""
    if name in sys.modules:
        loaded()
    else:
        sys.meta_path.insert(0, AfterImport(name, loaded))
