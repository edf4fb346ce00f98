"""Ranks that torchrun starts again, within their pod: what was dealt with before lets nothing pass now."""

import pytest

from stepwarden.report.records import read_findings, read_steps

pytestmark = pytest.mark.timeout(600)
TRAIN = """
import os, sys, torch
torch.manual_seed(0)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    if attempt == 0 and step == 5:
        sys.exit(3)
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().mean()
    (loss * float("nan") if step in ((3,), (2, 3))[attempt] else loss).backward()
    optimizer.step()
    finite = all(p.isfinite().all() for p in model.parameters())
    sys.stdout.write(f"attempt {attempt} step {step} finite {finite}\\n")
"""
MANIFEST = """
apiVersion: stepwarden.dev/v1alpha1
kind: TrainingJob
metadata: {name: tiny}
spec:
  onFinding:
  - {kinds: [RankFailed], severity: critical, action: Observe}
  - {kinds: ["*"], severity: critical, action: Hold, timeout: 1s, then: Skip}
  template:
    spec:
      containers:
      - name: trainer
        image: x
        command: [torchrun, --standalone, --nproc-per-node=1, --max-restarts=1, train.py]
"""


def test_a_nan_of_a_second_attempt_is_held_at_a_step_that_was_dealt_with_in_the_first(stepwarden):
    stepwarden.script(TRAIN)
    done = stepwarden("run", "-f", stepwarden.script(MANIFEST, "job.yaml"), "--report", "r")
    assert done.returncode == 0, done.stderr
    taken = [line for line in done.stdout.splitlines() if line.startswith("attempt")]
    assert len(taken) == 5 + 6
    assert all(line.endswith("finite True") for line in taken)
    holds = [line for line in done.stderr.splitlines() if "holds at" in line]
    assert [int(line.split(" step ")[1].split()[0]) for line in holds] == [3, 2, 3]
    assert done.stderr.count("the update of step 3 is left out") == 2
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    nans = [each for each in found if each.kind == "NonFiniteGradient"]
    assert [(each.step, each.evidence.get("attempt", 0)) for each in nans] == [(3, 0), (2, 1), (3, 1)]
    steps = read_steps(stepwarden.folder / "r" / "steps.jsonl")
    assert [each.step for each in steps[0]] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]
