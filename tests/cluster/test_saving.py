"""Before a suspension the training saves, in all its ranks at the same step, and goes on from there."""

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
    (-model(torch.ones(1, 1))).sum().backward()
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
    kube.until_state("asked", "Complete")
    for index in (0, 1):
        said = kube("logs", kube.pod_of("asked", index), "-c", "trainer")
        assert f"begins at {step + 1}" in said
        assert f"ends with {step + 6} after step {step + 5}" in said
