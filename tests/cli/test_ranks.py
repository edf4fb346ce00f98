"""Real ranks that hang, and ranks that only pause: by their pulses, at the hub of `stepwarden run`."""

import os
import signal
from pathlib import Path

import pytest

from stepwarden.report.records import read_findings

from .conftest import until

SCRIPT = Path(__file__).parent / "scripts" / "ranks.py"
BUSY = 150.0  # seconds that ranks may take to begin on a busy machine


def line(comment):
    """The line of the script that ends in a comment."""
    numbered = enumerate(SCRIPT.read_text().splitlines(), 1)
    return next(number for number, text in numbered if text.endswith(f"# {comment}"))


class Ranks:
    """A run of the script."""

    def __init__(self, stepwarden):
        self.stepwarden = stepwarden
        self.report = stepwarden.folder / "report"

    def start(self, *what):
        command = ("run", "--nproc", "2", "--report", self.report, "--", SCRIPT, *what)
        return self.stepwarden.start(*command, OMP_NUM_THREADS="1")

    def findings(self):
        path = self.report / "findings.jsonl"
        return [each for each in read_findings(path) if each.kind.startswith("Rank")] if path.exists() else []

    def steps(self):
        path = self.report / "steps.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def ranks(stepwarden):
    return Ranks(stepwarden)


def end(process):
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=120)


def test_a_rank_that_is_stopped_is_named_and_may_go_on(ranks):
    process = ranks.start(300)
    until(lambda: ranks.steps() > 40, BUSY)
    pid = int((ranks.stepwarden.folder / "pid-1").read_text())
    os.kill(pid, signal.SIGSTOP)
    [found, *_] = until(ranks.findings, BUSY)
    os.kill(pid, signal.SIGCONT)
    assert (found.kind, found.severity, found.rank, found.ranks) == ("RankHung", "critical", 1, (1,))
    assert "it has said nothing" in found.message
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert [each.kind for each in ranks.findings()] == ["RankHung"]
    assert "RankHung is over" in (ranks.report / "sidecar.log").read_text()


def test_a_rank_that_sleeps_in_its_forward_is_named_with_its_line(ranks):
    process = ranks.start(60, "sleep-in-forward")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    [found] = ranks.findings()
    assert (found.kind, found.rank, found.step) == ("RankHung", 1, 12)
    assert (Path(found.file), found.line) == (SCRIPT, line("sleeps"))
    [waits] = found.evidence["waiting"]
    assert waits["rank"] == 0
    assert "in forward" in found.evidence["stacks"]["1"]
    assert "finding: RankHung (critical) at step 12" in err


def test_collectives_that_do_not_match_are_named(ranks):
    process = ranks.start(60, "mismatch")
    [found, *_] = until(ranks.findings, BUSY)
    _, err = end(process)
    assert (found.kind, found.rank, found.ranks) == ("RankHung", None, (0, 1)), err
    places = {each["collective"]: each["line"] for each in found.evidence["waiting"]}
    assert places == {"all_reduce": line("reduces"), "barrier": line("meets")}


def test_jitter_pauses_and_a_slow_start_are_healthy(ranks):
    process = ranks.start(120, "slow-start", "pause", "evaluate")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "step 119" in out
    assert ranks.findings() == []
