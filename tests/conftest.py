"""What holds for all tests: with CI=true nothing is left out, so a skipped test is a failed one."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI=true leaves nothing out: {report.longrepr[2]}"
    return report
