"""What a supervisor says of what the hub tells it, look by look."""

from types import SimpleNamespace

import pytest

from stepwarden.cli.anew import Anew
from stepwarden.cli.plan import Plan
from stepwarden.cli.supervisor import Supervisor
from stepwarden.wire import JobReport, RankReport


def report(*states, step=0):
    ranks = [
        RankReport(rank=rank, pod=0, state=state, step=step, time=0.0) for rank, state in enumerate(states)
    ]
    return JobReport(version="", ranks=tuple(ranks))


@pytest.fixture
def lines(capfd):
    """Return what is said about reports that come at once one after the other."""

    def said(*reports, hold=True):
        told = iter(reports)
        hub = SimpleNamespace(report=lambda: next(told), instruct=lambda _instruction: True)
        ranks = len(reports[0].ranks)
        plan = Plan(title="", groups=(), ranks=ranks, rules=(), probes={}, hold=hold, live=True)
        sidecar = SimpleNamespace(hub=hub)
        supervisor = Supervisor(plan, sidecar, SimpleNamespace(), interactive=False, anew=Anew())
        for _ in reports:
            supervisor.look_at = 0.0
            supervisor.look()
        return capfd.readouterr().err.splitlines()

    return said


def test_that_all_ranks_are_held_is_said_though_another_line_was_just_written(lines):
    """A hold of a second would be over before the next line is due."""
    reports = [report("running", "running"), report("running", "held"), report("held", "held")]
    assert lines(*reports, reports[-1]) == [
        "stepwarden: step 0: rank 0 loss unknown, ? steps/s | rank 1 loss unknown, ? steps/s",
        "stepwarden: step 0: rank 0 held at 0 | rank 1 held at 0",
    ]


def test_a_line_about_the_progress_is_written_now_and_then_only(lines):
    assert len(lines(*(report("running", step=step) for step in range(5)), hold=False)) == 1
