"""Every module that may run beside the oldest Python and torch can be imported (scripts/test-oldest)."""

import pkgutil
from importlib import import_module

import pytest

PROGRAMS = {"__main__", "sitecustomize"}  # they act when they are imported


def modules(name):
    package = import_module(name)
    found = pkgutil.walk_packages(package.__path__, f"{name}.")
    return [module.name for module in found if module.name.rpartition(".")[2] not in PROGRAMS]


@pytest.mark.parametrize("package", ["stepwarden", "stepwarden_sidecar"])
def test_every_module_imports(package):
    for name in modules(package):
        import_module(name)
