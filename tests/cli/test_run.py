"""Runs of small scripts, most of them without torch: what a shell sees of `stepwarden run`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SLEEP = "import os, pathlib, time; pathlib.Path(f'up{os.environ.get(\"RANK\", 0)}').touch(); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def test_stdout_and_exit_code_are_the_scripts(stepwarden):
    stepwarden.script("import sys; print('hello', *sys.argv[1:]); sys.exit(7)")
    done = stepwarden("run", "--", "train.py", "--lr", "1")
    assert (done.returncode, done.stdout) == (7, "hello --lr 1\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("stepwarden: exit code 7 after ")
    assert line.endswith(f"no finding; report: {stepwarden.folder}/stepwarden-report/report.html")
    assert not stepwarden.left()


def test_stdin_is_the_scripts(stepwarden):
    stepwarden.script("print(input())")
    process = stepwarden.start("run", "train.py", stdin=subprocess.PIPE)
    assert process.communicate("typed\n", timeout=60)[0] == "typed\n"


def test_a_module(stepwarden):
    stepwarden.script("import sys; print(sys.argv[1:])", name="tiny_module.py")
    assert stepwarden("run", "-m", "tiny_module", "-x").stdout == "['-x']\n"


def test_a_script_that_dies_by_a_signal_has_the_exit_code_of_a_shell(stepwarden):
    stepwarden.script("import os; os.kill(os.getpid(), 9)")
    assert stepwarden("run", "train.py").returncode == 137


def test_reports_are_numbered(stepwarden):
    stepwarden.script("")
    stepwarden("run", "train.py")
    stepwarden("run", "train.py")
    assert (stepwarden.folder / "stepwarden-report-2" / "report.html").exists()


def test_an_earlier_report_is_replaced(stepwarden):
    stepwarden.script("")
    report = stepwarden.folder / "here"
    assert "replaced" not in stepwarden("run", "--report", report, "train.py").stderr
    (report / "findings.jsonl").write_text("old")
    assert (
        f"the earlier report in {report} is replaced"
        in stepwarden("run", "--report", report, "train.py").stderr
    )
    assert json.loads((report / "run.json").read_text())["exit_code"] == 0
    assert "old" not in (report / "findings.jsonl").read_text()


REFUSED = [
    (("run", "gone.py"), "there is no script gone.py"),
    (("run", "-m", "gone_module"), "there is no module 'gone_module' to run"),
    (("run", "-f", "gone.yaml"), "gone.yaml: No such file or directory"),
    (("run", "-f", "bad.yaml"), "bad.yaml: line 3: not YAML"),
    (("run", "-f", "two.yaml"), "two.yaml: which container runs the ranks?"),
    (("run", "--report", ".", "train.py"), "which is no part of a report: give an empty folder"),
    (("run", "--report", "train.py/x", "train.py"), "can't write the report to"),
    (("run",), "give a script"),
    (("run", "--probe", "NaN.every=1", "train.py"), "'NaN' is not a probe: know "),
    (("run", "--probe", "NonFiniteLoss.limit=1", "train.py"), "NonFiniteLoss has no parameter 'limit'"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_what_can_not_be_run_gets_one_line(stepwarden, arguments, said):
    stepwarden.script("print('started')")
    stepwarden.script("a: b\nc: [\n", name="bad.yaml")
    stepwarden.script(
        "apiVersion: stepwarden.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"
        "spec: {template: {spec: {containers: [{name: a}, {name: b}]}}}\n",
        name="two.yaml",
    )
    done = stepwarden(*arguments)
    [line] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("stepwarden: error: ")
    assert said in line
    assert not (stepwarden.folder / "stepwarden-report").exists()


def test_a_torch_that_is_too_old_gets_one_line(stepwarden):
    stepwarden.script("print('started')")
    old = stepwarden.folder / "old" / "torch-2.3.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.1\n")
    done = stepwarden("run", "train.py", PYTHONPATH=str(old.parent))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stepwarden: error: torch 2.3.1 is too old: pip install 'torch>=2.4'\n"


def test_without_the_extra_the_way_to_it_is_said(stepwarden):
    """`-S` leaves out site-packages: a Python that has nothing but the standard library and us."""
    source = Path(__file__).parents[2] / "sidecar"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "stepwarden.cli", "run", stepwarden.script("")],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("missing: pip install 'stepwarden[run]'\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_all(stepwarden, number, code):
    stepwarden.script(SLEEP)
    process = stepwarden.start("run", "train.py")
    stepwarden.until_exists("up0")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"exit code {code} " in err
    stepwarden.until_gone()


def test_a_script_that_ignores_sigterm_is_killed(stepwarden):
    stepwarden.script(STUBBORN)
    process = stepwarden.start("run", "train.py")
    stepwarden.until_exists("up0")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    stepwarden.until_gone()


def test_a_second_ctrl_c_kills(stepwarden):
    stepwarden.script(SLEEP.replace("import", "import signal; signal.signal(2, signal.SIG_IGN); import", 1))
    process = stepwarden.start("run", "train.py")
    stepwarden.until_exists("up0")
    process.send_signal(signal.SIGINT)
    assert "once more kills them" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    stepwarden.until_gone()


def test_what_a_script_leaves_behind_is_swept_up(stepwarden):
    stepwarden.script(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    )
    assert stepwarden("run", "train.py").returncode == 0
    assert not stepwarden.left()


def test_a_killed_torchrun_leaves_no_rank(stepwarden):
    stepwarden.script(STUBBORN)
    process = stepwarden.start("run", "--nproc", "2", "train.py")
    stepwarden.until_exists("up0")
    stepwarden.until_exists("up1")
    [torchrun] = [pid for pid in stepwarden.left() if "torch.distributed.run" in command(pid)]
    os.kill(torchrun, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 137
    assert not stepwarden.left()


def test_a_killed_stepwarden_leaves_nothing(stepwarden):
    stepwarden.script(SLEEP)
    process = stepwarden.start("run", "--nproc", "2", "train.py")
    stepwarden.until_exists("up0")
    process.kill()
    process.communicate()
    stepwarden.until_gone()


def test_a_killed_sidecar_is_started_again(stepwarden):
    stepwarden.script(SLEEP)
    process = stepwarden.start("run", "train.py")
    stepwarden.until_exists("up0")
    sidecars = [pid for pid in stepwarden.left() if "stepwarden_sidecar" in command(pid)]
    os.kill(sidecars[0], signal.SIGKILL)
    assert "the sidecar has ended: the training goes on" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    stepwarden.until_gone()


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").replace("\0", " ")
