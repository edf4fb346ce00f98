"""
What holds for all tests: with CI=true nothing is left out, so a skipped test is a failed one.

But for those that need a GPU: CI has none, so they aren't collected there.
"""

import gc
import os
from importlib.metadata import version

import pytest

# pytorch/pytorch#136358: the collector empties `__dict__` of tensors that C++ holds, and compiling fails then
SWEEPS_LIVING = tuple(map(int, version("torch").split(".")[:2])) < (2, 6)


def pytest_collection_modifyitems(config, items):
    if os.environ.get("CI") != "true":
        return
    without = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if item not in without]
    config.hook.pytest_deselected(items=without)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI=true leaves nothing out: {report.longrepr[2]}"
    return report


@pytest.fixture(autouse=SWEEPS_LIVING)
def unswept():
    """Let the collector run between tests alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
