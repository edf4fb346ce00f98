"""What a person reads of ranks that failed: the cause, then its consequences in one line."""

import dataclasses
import socket

import pytest

from stepwarden.cli import course, exits, findings, plan, rules, screen
from stepwarden.cli.arguments import Options
from stepwarden.failure import is_consequence, is_crash
from stepwarden.wire import ENV_GRACE, SIDECAR_SOCKET, Finding, JobReport, RankReport, from_line, to_dict

CAUSE = Finding(
    kind="RankFailed",
    severity="critical",
    step=12,
    rank=1,
    ranks=(1,),
    file="train.py",
    line=9,
    message="ValueError: no (exit code 1)",
    evidence={"exit_code": 1, "traceback": "Traceback ...\nValueError: no\n", "local": True},
)
KILLED = dataclasses.replace(
    CAUSE, file=None, line=None, message="the process was killed by SIGKILL", evidence={"signal": "SIGKILL"}
)


def followed(rank, because=1):
    return dataclasses.replace(CAUSE, rank=rank, severity="info", evidence={"because": because})


def block(finding):
    return screen.block(finding, rules.of_mode("observe", None), interactive=False)


def test_who_raised_has_printed_it():
    assert block(CAUSE) == [
        "finding: RankFailed (critical) at step 12, began on rank 1",
        "  train.py:9",
        "  ValueError: no (exit code 1)",
        "  the run ends by itself; the traceback is above, and in the report",
    ]


def test_who_was_killed_has_printed_nothing():
    assert block(KILLED)[1:] == ["  the process was killed by SIGKILL", "  the run ends by itself"]


def test_a_thread_s_failure_ends_nothing():
    warned = dataclasses.replace(CAUSE, severity="warning", message="thread 'x' ended, the rank lives on")
    assert "the training goes on" in block(warned)[-1]
    assert is_crash(CAUSE)
    assert not is_crash(warned)
    assert not is_crash(followed(0))


def test_a_crash_s_stack_is_shown_and_a_long_one_cut():
    stack = "Fatal Python error: Aborted\n" + "".join(f'  File "t.py", line {n} in f\n' for n in range(30))
    lines = block(dataclasses.replace(KILLED, evidence={"signal": "SIGABRT", "traceback": stack}))
    assert lines[2] == "  Fatal Python error: Aborted"
    assert lines[-2:] == ["  ... 19 more lines in the report", "  the run ends by itself"]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([followed(0)], "rank 0 ended because of rank 1"),
        ([followed(2), followed(0)], "ranks 0 and 2 ended because of rank 1"),
        ([followed(rank) for rank in range(2, 9)], "ranks 2, 3, 4 and 4 more ended because of rank 1"),
        ([followed(0, None)], "rank 0 ended because of another rank"),
    ],
)
def test_consequences_are_one_line(ends, said):
    assert screen.consequences(ends) == said
    assert all(map(is_consequence, ends))
    assert not is_consequence(CAUSE)


def test_kubectl_stepwarden_findings_shows_the_traceback():
    lines = findings.text("tiny", [to_dict(CAUSE)], {}).splitlines()
    assert lines[-3:] == ["  ValueError: no (exit code 1)", "    Traceback ...", "    ValueError: no"]
    bare = to_dict(dataclasses.replace(CAUSE, kind="NonFiniteLoss"))
    assert findings.text("tiny", [bare], {}).splitlines()[-1] == "  ValueError: no (exit code 1)"


def test_two_ranks_that_fail_at_one_step_are_two_findings():
    assert screen.key(CAUSE) != screen.key(dataclasses.replace(CAUSE, rank=0))
    other = dataclasses.replace(CAUSE, kind="NonFiniteLoss")
    assert screen.key(other) == screen.key(dataclasses.replace(other, rank=0))


@pytest.mark.parametrize(
    ("states", "ends", "over"),
    [
        ("ended ended", [], True),
        ("ended failed", [], False),
        ("ended failed", [CAUSE], True),
        ("failed failed", [CAUSE], False),
        ("failed failed", [CAUSE, followed(0)], True),
        ("running failed", [CAUSE], False),
        ("", [], True),
    ],
)
def test_a_run_is_over_once_every_end_is_explained(states, ends, over):
    ranks = tuple(
        RankReport(rank=rank, pod=0, state=state, step=11, time=0.0)
        for rank, state in enumerate(states.split())
    )
    assert course.over(JobReport(version="1", ranks=ranks, findings=tuple(ends))) is over


def test_the_sidecar_is_told_of_processes_that_end_and_of_those_that_are_ended(tmp_path):
    exits.ended(tmp_path, 7, -9)  # nobody listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sidecar:
        sidecar.bind(str(tmp_path / SIDECAR_SOCKET))
        exits.ended(tmp_path, 7, -9)
        exits.ending(tmp_path, [8, 9], 15)
        said = [from_line(sidecar.recv(4096)) for _ in range(3)]
    assert [(each.pid, each.code, each.asked) for each in said] == [
        (7, -9, False),
        (8, -15, True),
        (9, -15, True),
    ]


@pytest.mark.parametrize(
    ("given", "asked", "seconds"), [(None, None, 2.0), (None, 5.0, 5.0), (1.0, 5.0, 1.0)]
)
def test_the_grace_period_is_the_person_s_then_the_manifest_s(tmp_path, given, asked, seconds):
    options = Options(command=("train.py",), mode="observe", failure_grace=given)
    assert plan.grace(options, asked) == seconds
    made = plan.of_script(options, interactive=False)
    assert plan.variables(made, tmp_path)[ENV_GRACE] == str(2.0 if given is None else given)
