"""Each way of dying, in one of two ranks: the cause is named, told to the other rank, and shown first."""

import re
from pathlib import Path

import pytest

from stepwarden.report.records import read_findings

SCRIPT = Path(__file__).parent / "scripts" / "dies.py"
STEP = 5


def line(comment):
    """The line of the script that ends in a comment."""
    numbered = enumerate(SCRIPT.read_text().splitlines(), 1)
    return next(number for number, text in numbered if text.endswith(f"# dies: {comment}"))


@pytest.mark.parametrize(
    ("how", "said", "code", "trace"),
    [
        ("raise", "ValueError: second", 1, "KeyError: 'first'"),
        ("sys.exit", "sys.exit(3)", 3, "in die"),
        ("os._exit", "os._exit(4)", 4, "in die"),
        ("segfault", "SIGSEGV (segmentation fault)", 139, "in die"),
        ("abort", "SIGABRT", 134, "in die"),
        ("SIGKILL", "the process was killed by SIGKILL", 137, ""),
        ("KeyboardInterrupt", "exit code 1 (KeyboardInterrupt)", 1, ""),  # of one rank alone: no Ctrl-C
    ],
)
def test_the_cause_is_named_and_told_and_shown_first(stepwarden, how, said, code, trace):
    done, cause, others = died(stepwarden, how)
    assert said in cause.message
    assert (cause.evidence["exit_code"], trace in cause.evidence.get("traceback", "")) == (code, True)
    if how in {"raise", "segfault", "abort"}:
        assert (cause.file, cause.line) == (str(SCRIPT), line(how))
    assert others <= {("RankFailed", 0, "info")}
    assert f"rank 0: rank 1 failed at step {STEP}: {cause.message}" in done.stderr
    shown = done.stderr.index(f"finding: RankFailed (critical) at step {STEP}, began on rank 1")
    followed = done.stderr.find("rank 0 ended because of rank 1")
    assert followed == -1 or shown < followed


def test_who_is_killed_without_a_stack_is_told_with_where_it_was_seen_last(stepwarden):
    _, cause, _ = died(stepwarden, "SIGKILL at work")
    where = rf"in the code between two steps at {SCRIPT}:{line('SIGKILL at work')}"
    words = rf"the process was killed by SIGKILL, last seen [\d.]+ s before {where}"
    assert re.fullmatch(words, cause.message), cause.message
    assert (cause.file, cause.evidence["seen"]["phase"]) == (None, "data")


def test_tensors_of_unlike_sizes_in_a_collective_are_told_as_what_they_are(stepwarden):
    script = stepwarden.script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(4 + dist.get_rank())\n"
        "dist.all_reduce(x)\n"
    )
    done = stepwarden("run", "--nproc", "2", "--report", "r", "--", script, OMP_NUM_THREADS="1")
    assert done.returncode != 0
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    [cause] = [each for each in found if each.severity == "critical"]
    assert f"SIGABRT at {script}:4, in all_reduce: gloo aborts a rank" in cause.message
    [other] = [each for each in found if each != cause]
    assert (other.severity, other.evidence["because"]) == ("info", cause.rank)
    [shapes] = other.evidence["tensors"].values()
    assert shapes == {"x": f"float32[{5 - cause.rank}]"}


def test_an_exit_that_only_torchrun_sees_is_named_once_the_process_is_gone(stepwarden):
    _, cause, others = died(stepwarden, "SystemExit")
    seen = r"(, last seen [\d.]+ s before in .* at .*:\d+)?"  # where a pulse came within that step
    assert re.fullmatch(f"the process ended with exit code 6{seen}", cause.message), cause.message
    assert {each for each in others if each[0] == "RankFailed"} <= {("RankFailed", 0, "info")}


def died(stepwarden, how):
    """Run it; return how it ended, the one failure that is critical, and what else was found."""
    done = stepwarden("run", "--nproc", "2", "--report", "r", "--", SCRIPT, how, OMP_NUM_THREADS="1")
    assert done.returncode != 0
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    [cause] = [each for each in found if (each.kind, each.severity) == ("RankFailed", "critical")]
    assert (cause.rank, cause.step) == (1, STEP), done.stderr
    assert not stepwarden.left()
    return done, cause, {(each.kind, each.rank, each.severity) for each in found if each != cause}


def test_a_single_rank_without_torchrun_is_told_of_by_stepwarden_run(stepwarden):
    script = stepwarden.script(
        "import os, signal, torch\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(3):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = stepwarden("run", "--report", "r", "--", script)
    assert done.returncode == 137
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    [finding] = [each for each in found if each.kind == "RankFailed"]
    assert (finding.severity, finding.rank, finding.evidence["signal"]) == ("critical", 0, "SIGKILL")
    assert "the process was killed by SIGKILL" in done.stderr


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "pass"])
def test_a_rank_that_ends_well_is_no_failure(stepwarden, ending):
    script = stepwarden.script(f"import os, sys, torch\ntorch.ones(1)\n{ending}\n")
    done = stepwarden("run", "--nproc", "2", "--report", "r", "--", script)
    assert done.returncode == 0, done.stderr
    assert not read_findings(stepwarden.folder / "r" / "findings.jsonl")


def test_a_rank_that_ends_well_before_the_others_is_named_in_their_failure(stepwarden):
    script = stepwarden.script(
        "import sys, torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(8 - 4 * dist.get_rank()):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "if dist.get_rank() == 1: sys.exit(0)\n"
    )
    done = stepwarden("run", "--nproc", "2", "--on-anomaly", "observe", "--report", "r", "--", script)
    assert done.returncode == 1, done.stderr
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    [finding] = [each for each in found if each.kind == "RankFailed"]
    assert (finding.severity, finding.rank, finding.evidence["ended"]) == ("critical", 0, [1])
    assert "rank 1 has ended before: let every rank take the same number of steps" in done.stderr
