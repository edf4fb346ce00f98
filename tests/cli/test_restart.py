"""Runs that are started anew, with real ranks: from the newest good checkpoint, and so often and no more."""

import json
import subprocess

import pytest

from stepwarden.cli.anew import Anew, crashed
from stepwarden.policy import Rule
from stepwarden.restarts import Restarts
from stepwarden.wire import Finding

pytestmark = pytest.mark.timeout(600)  # two runs, each with its own start of torch

# One rank or two sum up steps, rank 0 saves; something happens at step 6 of the first run, or in each.
TRAIN = """
import os, signal, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank, ranks, how = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), sys.argv[1]
layer = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(layer.weight)
found, begin = os.environ["STEPWARDEN_RESUME_FROM"], 0
if found:
    saved = torch.load(found, weights_only=True)
    layer.load_state_dict(saved["model"])
    begin = saved["step"] + 1
sys.stdout.write(f"rank {rank} begins at {begin} from {os.path.basename(found)!r}\\n")  # in one piece
model = layer
if ranks > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), 1.0)
os.makedirs("checkpoints", exist_ok=True)
bad_step = 6 if not found else begin if "always" in sys.argv else None
for step in range(begin, 10):
    optimizer.zero_grad()
    (-model(torch.ones(1, 1))).sum().backward()
    if step == bad_step and how == "nan":
        layer.weight.grad.fill_(float("nan"))
    optimizer.step()
    if rank == 0:
        torch.save({"model": layer.state_dict(), "step": step}, "checkpoints/new")
        os.replace("checkpoints/new", f"checkpoints/step-{step}.pt")
    if ranks > 1:
        dist.barrier()
    if step == bad_step and how == "kill" and rank == ranks - 1:
        if "poison" in sys.argv:
            bad = {"model": {"weight": torch.tensor([[float("nan"), 1.0]])}, "step": 6}
            torch.save(bad, "checkpoints/step-6.pt")
        os.kill(os.getpid(), signal.SIGKILL)
sys.stdout.write(f"rank {rank} ends with {layer.weight.item():.0f}\\n")
if ranks > 1:
    dist.destroy_process_group()
"""


def begins(done):
    return sorted(line for line in done.stdout.splitlines() if " begins " in line)


def facts(stepwarden):
    return json.loads((stepwarden.folder / "stepwarden-report" / "run.json").read_text())


def run(stepwarden, *options, script):
    stepwarden.script(TRAIN)
    process = stepwarden.start("run", "--checkpoint-dir", "checkpoints", *options, "train.py", *script)
    out, err = process.communicate(timeout=560)
    return subprocess.CompletedProcess(script, process.returncode, out, err)


def test_a_rank_that_is_killed_starts_the_run_anew_from_its_checkpoint(stepwarden):
    done = run(stepwarden, "--nproc", "2", "--max-restarts", "2", script=["kill"])
    assert done.returncode == 0, done.stderr
    assert begins(done) == [
        *("rank 0 begins at 0 from ''", "rank 0 begins at 7 from 'step-6.pt'"),
        *("rank 1 begins at 0 from ''", "rank 1 begins at 7 from 'step-6.pt'"),
    ]
    assert "rank 0 ends with 10" in done.stdout
    assert "restart 1 of 2 in 1s: RankFailed" in done.stderr
    assert done.stderr.count("goes on from ") == 1  # the ranks of a pod look once
    assert (facts(stepwarden)["restarts"], facts(stepwarden)["exit_code"]) == (1, 0)
    assert not stepwarden.left()


def test_a_poisoned_checkpoint_is_passed_over(stepwarden):
    done = run(stepwarden, "--max-restarts", "1", script=["kill", "poison"])
    assert done.returncode == 0, done.stderr
    assert "rank 0 begins at 6 from 'step-5.pt'" in done.stdout
    assert "which is poisoned: step-6.pt holds NaN in model.weight" in done.stderr
    assert "rank 0 ends with 10" in done.stdout


@pytest.mark.parametrize("how", ["kill", "nan"])
def test_a_run_that_fails_again_and_again_ends(stepwarden, how):
    options = ["--on-anomaly", "restart", "--max-restarts", "1"]
    done = run(stepwarden, *options, script=[how, "always"])
    assert done.returncode == (3 if how == "nan" else 137), done.stderr
    assert "restart 1 of 1" in done.stderr
    assert "no restart is left" in done.stderr
    assert facts(stepwarden)["restarts"] == 1
    assert not stepwarden.left()


def test_a_nan_starts_the_run_anew_before_its_update(stepwarden):
    done = run(stepwarden, "--on-anomaly", "restart", script=["nan"])
    assert done.returncode == 0, done.stderr
    assert "rank 0 begins at 6 from 'step-5.pt'" in done.stdout
    assert "rank 0 ends with 10" in done.stdout
    assert "restart 1 of 3 in 1s: NonFiniteGradient" in done.stderr


RESTART = Rule(kinds=("RankFailed",), severity="critical", action="Restart", times=1)
ANY = Rule(severity="critical", action="Hold", timeout=1.0, then="Restart")


def failed(**evidence):
    return Finding(kind="RankFailed", severity="critical", step=3, message="m", evidence=evidence)


def test_each_restart_counts_for_its_rule_and_for_the_run():
    rules = (RESTART, ANY)
    anew = Anew(bounds=Restarts(most=3, backoff=2.0))
    assert (anew.rules(rules), anew.wait) == (rules, 2.0)
    anew = anew.more(rules, crashed(rules, [failed()], 1))
    assert anew.wait == 4.0
    assert [rule.action for rule in anew.rules(rules)] == ["Fail", "Hold"]
    assert "1 of 1 times by this rule" in anew.refusal(rules, crashed(rules, [failed()], 1))
    anew = Anew(bounds=Restarts(most=0))
    assert [(rule.action, rule.then) for rule in anew.rules(rules)] == [("Fail", None), ("Hold", "Fail")]


def test_a_crash_that_no_agent_told_of_has_the_runs_exit_code():
    bounds = Anew(bounds=Restarts(policy="ExitCode", retryable=frozenset({42})))
    for code, refused in ((1, True), (42, False), (137, False)):
        assert bool(bounds.refusal((RESTART,), crashed((RESTART,), [], code))) == refused
    assert not bounds.refusal((RESTART,), crashed((RESTART,), [failed(signal="SIGKILL")], 1))
