"""The example and a smaller script under the real agent, sidecar and torchrun."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stepwarden.report.records import read_findings, read_steps

BAD_STEP = 42  # of the example
TINY = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.ones(2, 4) if step != 3 else torch.zeros(2, 4)
    y = model(x) - model.bias
    loss = torch.where(y > 0, y.abs().sqrt(), torch.zeros_like(y)).sum()
    optimizer.zero_grad()
    loss.backward()
    before = model.weight.detach().clone()
    optimizer.step()
    print("step", step, "changed", not torch.equal(before, model.weight), flush=True)
"""


def torchrun(folder, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_example_is_held_and_goes_on_without_the_poisoned_update(stepwarden, nan):
    done = stepwarden("run", "-f", nan / "job.yaml", "--hold-timeout", "1s", "--report", "r")
    assert done.returncode == 0, done.stderr
    assert "step 79 loss" in done.stdout
    report = stepwarden.folder / "r"
    found = {finding.kind: finding for finding in read_findings(report / "findings.jsonl")}
    assert set(found) == {"NonFiniteGradient", "NonFiniteActivation"}
    finding = found["NonFiniteGradient"]
    assert (finding.step, finding.rank, finding.op) == (BAD_STEP, 1, "div")
    assert finding.file.endswith("train.py")
    assert (finding.ranks, finding.parameter) == ((0, 1), "widen.weight")
    assert {rank: [s.step for s in steps] for rank, steps in read_steps(report / "steps.jsonl").items()} == {
        rank: list(range(80)) for rank in (0, 1)
    }
    assert "began on rank 1" in (report / "report.html").read_text(encoding="utf-8")
    for said in (
        "stepwarden: step ",
        "finding: NonFiniteGradient (critical) at step 42, began on rank 1, seen on ranks 0 and 1",
        "parameter widen.weight",
        "after 1s this update is left out and the training goes on (there is no terminal to ask)",
        "the update of step 42 is left out, as the policy says: the training goes on",
        f"report: {report / 'report.html'}",
    ):
        assert said in done.stderr
    assert not stepwarden.left()


def test_observe_is_plain_torchrun_to_the_bit(stepwarden, nan):
    arguments = (nan / "train.py", "--steps", "46")
    plain = torchrun(stepwarden.folder, *arguments)
    seen = stepwarden("run", "--nproc", "2", "--on-anomaly", "observe", "--", *arguments)
    assert seen.returncode == 0, seen.stderr
    assert of_steps(seen.stdout) == of_steps(plain)
    assert "it is only observed" in seen.stderr
    found = read_findings(stepwarden.folder / "stepwarden-report" / "findings.jsonl")
    assert (found[0].kind, found[0].step, found[0].rank) == ("NonFiniteGradient", BAD_STEP, 1)


def of_steps(stdout):
    """The lines of rank 0 from the first step on; what both ranks print before may come in any order."""
    lines = [line for line in stdout.splitlines() if line.startswith("step ")]
    assert len(lines) == 46
    return lines


def test_two_nodes_find_each_other(stepwarden):
    stepwarden.script(
        "import os\n"
        "words = [os.environ[name] for name in ('RANK', 'GROUP_RANK', 'WORLD_SIZE')]\n"
        "os.write(1, (' '.join(words) + '\\n').encode())\n"  # in one piece: torchrun's ranks don't buffer
    )
    done = stepwarden("run", "--nnodes", "2", "--nproc", "2", "train.py")
    assert sorted(done.stdout.splitlines()) == ["0 0 4", "1 0 4", "2 1 4", "3 1 4"], done.stderr


def test_a_rank_that_crashes_gives_torchruns_exit_code_and_a_finding(stepwarden):
    stepwarden.script("import os, torch\nif os.environ['RANK'] == '1': raise OSError('no disk')")
    done = stepwarden("run", "--nproc", "2", "train.py")
    assert done.returncode == 1
    [finding] = read_findings(stepwarden.folder / "stepwarden-report" / "findings.jsonl")
    assert (finding.kind, finding.rank) == ("RankFailed", 1)
    assert "finding: RankFailed (critical)" in done.stderr
    assert not stepwarden.left()


@pytest.mark.parametrize(
    ("mode", "code", "at_three"),
    [("observe", 0, ["True"]), ("skip", 0, ["False"]), ("stop", 3, [])],
)
def test_what_becomes_of_the_update_without_a_terminal(stepwarden, mode, code, at_three):
    stepwarden.script(TINY)
    done = stepwarden("run", "--on-anomaly", mode, "train.py")
    assert done.returncode == code, done.stderr
    assert changed(done.stdout, 3) == at_three
    assert not stepwarden.left()


def test_a_hold_that_nobody_ends_stops_the_run(stepwarden):
    stepwarden.script(TINY)
    done = stepwarden("run", "--on-anomaly", "hold", "--hold-timeout", "1s", "train.py")
    assert done.returncode == 3
    assert "the run is stopped, as the policy says" in done.stderr
    assert changed(done.stdout, 3) == []
    assert json.loads((stepwarden.folder / "stepwarden-report" / "run.json").read_text())["exit_code"] == 3


def changed(stdout, step):
    return [line.split()[3] for line in stdout.splitlines() if line.startswith(f"step {step} ")]


class Terminal:
    """A person's terminal: `stepwarden` in the foreground of a pty."""

    def __init__(self, folder, *arguments):
        command = [sys.executable, "-m", "stepwarden.cli", *arguments]
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execv(sys.executable, command)  # noqa: S606 - the child of a fork
        self.text = ""

    def read_until(self, words, times=1):
        while self.text.count(words) < times:
            try:
                more = os.read(self.descriptor, 4096)
            except OSError:  # the other side is closed
                break
            self.text += more.decode().replace("\r\n", "\n")
        assert self.text.count(words) >= times, self.text

    def type(self, keys):
        os.write(self.descriptor, keys.encode())

    def wait(self):
        self.read_until("report.html\n")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize(
    ("key", "code", "at_three"),
    [("s\n", 0, ["False"]), ("a\nq\n", 3, ["True"]), ("q\n", 3, []), ("\x03", 130, [])],
)
def test_a_person_chooses(stepwarden, key, code, at_three):
    stepwarden.script(TINY)
    terminal = Terminal(stepwarden.folder, "run", "train.py")
    for question, word in enumerate(key.splitlines(keepends=True), 1):
        terminal.read_until("type one of them and Enter\n", times=question)
        terminal.type(word)
    assert terminal.wait() == code
    assert changed(terminal.text, 3) == at_three


def test_ctrl_c_ends_ranks_that_are_held(stepwarden):
    stepwarden.script(TINY)
    terminal = Terminal(stepwarden.folder, "run", "--nproc", "2", "train.py")
    terminal.read_until("type one of them and Enter\n")
    terminal.type("\x03")
    assert terminal.wait() == 130
    stepwarden.until_gone()


def manifest(folder, **spec):
    container = {"name": "trainer", "image": "x", "command": ["python", "train.py"]}
    spec |= {"template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "stepwarden.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "tiny"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job | {"spec": spec}))


def test_a_manifest_that_starts_held(stepwarden):
    stepwarden.script(TINY)
    manifest(stepwarden.folder, hold=True, onFinding=[{"action": "Observe"}])
    done = stepwarden("run", "-f", "job.yaml", "--hold-timeout", "1s")
    assert done.returncode == 0, done.stderr
    assert "the ranks are held at their first step, and go on after 1s" in done.stderr
    assert "the hold is over: the training goes on" in done.stderr
    assert "stepwarden: step 0: rank 0 held at 0\n" in done.stderr
    assert changed(done.stdout, 3) == ["True"]


def test_a_manifest_that_is_suspended_starts_nothing(stepwarden):
    manifest(stepwarden.folder, suspend=True)
    done = stepwarden("run", "-f", "job.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "stepwarden: spec.suspend of tiny is true: nothing is started\n"


def test_a_sidecar_that_is_killed_during_a_hold_comes_back_and_hears_the_answer(stepwarden):
    stepwarden.script(TINY)
    process = stepwarden.start("run", "--on-anomaly", "hold", "--hold-timeout", "5s", "train.py")
    while "finding: NonFiniteGradient" not in process.stderr.readline():
        assert process.poll() is None
    [sidecar] = [pid for pid in stepwarden.left() if b"stepwarden_sidecar" in commandline(pid)]
    os.kill(sidecar, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert "the sidecar has ended: the training goes on, and it is started again" in err
    assert err.count("finding: ") == 0  # the new one knows it, and it is not said twice
    assert (process.returncode, changed(out, 3)) == (3, [])
    [finding] = read_findings(stepwarden.folder / "stepwarden-report" / "findings.jsonl")
    assert finding.step == 3


def commandline(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()
