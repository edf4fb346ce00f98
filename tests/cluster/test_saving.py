"""Before its pods go the training saves, in all its ranks at the same step, and goes on from there."""

import json
import re

from support.kube import until
from support.trainers import script_job, with_folder

# Saves only when it is asked: so the one checkpoint that there is can only be the answer.
ASKED = """
import os, time, torch
import torch.distributed as dist
import stepwarden
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, step = dist.get_rank(), -1
layer = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(layer.weight)
begin, found = 0, os.environ["STEPWARDEN_RESUME_FROM"]
if found:
    saved = torch.load(found, weights_only=True)
    layer.load_state_dict(saved["model"])
    begin = saved["step"] + 1
print(f"begins at {begin}", flush=True)
model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), 1.0)

@stepwarden.on_save
def save():
    print(f"saves behind step {step - 1}", flush=True)
    if rank == 0:
        torch.save({"model": layer.state_dict(), "step": step - 1}, "/checkpoints/new")
        os.replace("/checkpoints/new", f"/checkpoints/step-{step - 1}.pt")
    dist.barrier()

for step in range(begin, begin + 1000 if not found else begin + 5):
    optimizer.zero_grad()
    out = model(torch.ones(1, 1))
    if not found and rank == 1 and step == int(os.environ.get("BAD_STEP", -1)):
        out.register_hook(lambda grad: grad * float("nan"))
    (-out).sum().backward()
    optimizer.step()
    time.sleep(0.05)
print(f"ends with {layer.weight.item():.0f} after step {step}", flush=True)
dist.destroy_process_group()
"""


def suspend(kube, name, *, wanted):
    kube("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": wanted}}))


def test_a_suspension_waits_for_the_checkpoint_that_it_asks_for(kube, folder):
    checkpoint = {"directory": "/checkpoints", "gracePeriod": "90s"}
    job, script = script_job("asked", ASKED, nodes=2, checkpoint=checkpoint)
    kube.apply(with_folder(job, folder), script)
    kube.until_step("asked", 5)
    assert not list(folder.iterdir())
    suspend(kube, "asked", wanted=True)
    kube.until_state("asked", "Suspended")
    until("the pods are gone", lambda: not kube.pods("asked"))
    [saved] = folder.glob("step-*.pt")
    step = int(re.search(r"\d+", saved.name)[0])
    suspend(kube, "asked", wanted=False)
    goes_on_behind(kube, "asked", step)


def test_a_restart_before_a_poisoned_update_saves_first_and_goes_on_from_there(kube, folder):
    checkpoint = {"directory": "/checkpoints", "gracePeriod": "90s"}
    rules = [{"kinds": ["NonFiniteGradient"], "severity": "critical", "action": "Restart"}]
    job, script = script_job(
        "anew",
        ASKED,
        nodes=2,
        env={"BAD_STEP": 8},
        checkpoint=checkpoint,
        onFinding=rules,
        restartBackoff="1s",
    )
    kube.apply(with_folder(job, folder), script)
    goes_on_behind(kube, "anew", 7)
    [saved] = folder.glob("step-*.pt")
    assert saved.name == "step-7.pt"
    status = kube.get("tj", "anew")["status"]
    assert (status["restarts"], status["run"]) == (1, 1)
    assert (status["findings"][0]["kind"], status["findings"][0]["step"]) == ("NonFiniteGradient", 8)


def goes_on_behind(kube, name, step):
    """Wait for the end; both ranks have gone on from the checkpoint of a step, and lost none of it."""
    kube.until_state(name, "Complete")
    for index in (0, 1):
        said = kube("logs", kube.pod_of(name, index), "-c", "trainer")
        assert f"begins at {step + 1}" in said
        assert f"ends with {step + 6} after step {step + 5}" in said
