"""Ranks that torchrun starts again within their pod: a resume counts for what it was given for."""

import re

from support.trainers import training_job, with_script

# In the first attempt a NaN at step 3, and an end at step 5; in the second the same NaN again.
TRAIN = """
import os, sys, time, torch
torch.set_num_threads(1)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], 1.0)
for step in range(8):
    if attempt == 0 and step == 5:
        sys.exit(3)
    optimizer.zero_grad()
    loss = (-parameter).sum()
    (loss * float("nan") if step == 3 else loss).backward()
    optimizer.step()
    time.sleep(0.05)
print(f"attempt {attempt} ends with {parameter.item():.0f}", flush=True)
"""
RULES = [
    {"kinds": ["RankFailed"], "severity": "critical", "action": "Observe"},
    {"kinds": ["*"], "severity": "critical", "action": "Hold"},
]


def test_a_nan_of_a_second_attempt_is_held_where_that_step_was_resumed_in_the_first(kube):
    command = ["torchrun", "--standalone", "--nproc-per-node=1", "--max-restarts=1", "/srv/train.py"]
    kube.apply(*with_script(training_job("twice", command, onFinding=RULES), TRAIN))
    for attempt in (0, 1):
        kube.until_state("twice", "Held")
        status = kube.get("tj", "twice")["status"]
        assert (status["pause"]["step"], status["pause"].get("attempt", 0)) == (3, attempt)
        assert "step 3 " in kube.plugin("resume", "twice")
        kube.until_condition("twice", "Held", status="False")
    kube.until_state("twice", "Complete")
    said = kube("logs", kube.pod_of("twice"), "-c", "trainer")
    assert re.findall(r"attempt \d ends with \S+", said) == ["attempt 1 ends with 7"]
    found = kube.get("tj", "twice")["status"]["findings"]
    nans = [each["evidence"].get("attempt", 0) for each in found if each["kind"] == "NonFiniteGradient"]
    assert nans == [0, 1]
