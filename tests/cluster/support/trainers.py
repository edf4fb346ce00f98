"""TrainingJobs for tests: the user's side of the cluster, cheap to run."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOST_IMAGE = "cluster.test/host:1"
IMAGE = os.environ.get("STEPWARDEN_TEST_IMAGE")  # has torch; without it, pods use this machine's own files

# Takes steps until a file in any pod says that it is enough.
# Says each step, and what the parameters were before it.
LOOP = """
import hashlib, os, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
bad_step, bad_rank = int(os.environ.get("BAD_STEP", -1)), dist.get_world_size() - 1
layer = torch.nn.Linear(4, 4)
model = DistributedDataParallel(layer)
optimizer = torch.optim.SGD(model.parameters(), 0.01)

def digest():
    flat = torch.cat([parameter.detach().flatten() for parameter in layer.parameters()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:12] if flat.isfinite().all() else "poisoned"

for step in range(int(os.environ.get("STEPS", 1_000_000))):
    done = torch.tensor(float(os.path.exists("/scratch/finish")))
    dist.all_reduce(done)
    if done:
        break
    optimizer.zero_grad()
    out = model(torch.ones(1, 4))
    if step == bad_step and rank == bad_rank:
        out.register_hook(lambda grad: grad * float("nan"))
    out.pow(2).mean().backward()
    print(f"rank {rank} step {step} parameters {digest()}", flush=True)
    optimizer.step()
    time.sleep(0.05)
print(f"rank {rank} end parameters {digest()}", flush=True)
dist.destroy_process_group()
"""
CRASH = """
import torch
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], 0.1)
for step in range(3):
    optimizer.zero_grad()
    parameter.sum().backward()
    optimizer.step()
raise ValueError("the data ends in the middle of a sample")
"""


def host_folders():
    """Find what a pod needs of this machine to run the tests' own Python."""
    folders = ["/usr", "/bin", "/lib", "/lib64", sys.prefix, sys.base_prefix]
    return [folder for folder in dict.fromkeys(folders) if Path(folder).exists() and folder != "/usr/local"]


def dress(job):
    """Give a TrainingJob an image that can be had here, and change nothing else."""
    spec = job["spec"]["template"]["spec"]
    trainer = spec["containers"][0]
    trainer["image"] = IMAGE or HOST_IMAGE
    if IMAGE:
        return job
    path = {"name": "PATH", "value": f"{sys.prefix}/bin:/usr/bin:/bin"}
    volumes = [(f"host-{number}", folder) for number, folder in enumerate(host_folders())]
    trainer["env"] = [*trainer.get("env", []), path]
    trainer["volumeMounts"] = [
        *trainer.get("volumeMounts", []),
        *({"name": name, "mountPath": folder, "readOnly": True} for name, folder in volumes),
    ]
    spec["volumes"] = [
        *spec.get("volumes", []),
        *({"name": name, "hostPath": {"path": folder}} for name, folder in volumes),
    ]
    return job


def training_job(name, command, *, nodes=1, env=None, **spec):
    """Put a TrainingJob that runs a command."""
    variables = [{"name": key, "value": str(value)} for key, value in (env or {}).items()]
    trainer = {"name": "trainer", "image": HOST_IMAGE, "command": command, "env": variables}
    template = {"spec": {"containers": [trainer], "terminationGracePeriodSeconds": 1}}
    body = {
        "apiVersion": "stepwarden.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"numNodes": nodes, "template": template, **spec},
    }
    return dress(body)


def shell_job(name, script, **rest):
    """Put a TrainingJob whose ranks are a shell script: for what is not about training."""
    return training_job(name, ["sh", "-c", script], **rest)


def script_job(name, script, **rest):
    """
    Put a TrainingJob that runs a Python script, and the ConfigMap that brings it.

    One rank a pod needs no torchrun, which takes as long to start as the rank itself; the example has it.
    """
    start = "RANK=$PET_NODE_RANK WORLD_SIZE=$PET_NNODES LOCAL_RANK=0 exec python -u /srv/train.py"
    return with_script(training_job(name, ["sh", "-c", start], **rest), script)


def with_script(job, script, scratch=None):
    """Bring a script to /srv/train.py, and a volume to /scratch: an empty one, where none is given."""
    name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
    volumes = (
        ("script", "/srv", {"configMap": {"name": name}}),
        ("scratch", "/scratch", scratch or {"emptyDir": {}}),
    )
    trainer = spec["containers"][0]
    trainer["volumeMounts"] = trainer.get("volumeMounts", []) + [
        {"name": volume, "mountPath": path} for volume, path, _ in volumes
    ]
    spec["volumes"] = spec.get("volumes", []) + [{"name": volume, **source} for volume, _, source in volumes]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"train.py": script}}
    return job, body


def loop_job(name, **rest):
    """Put a TrainingJob of LOOP."""
    return script_job(name, LOOP, **rest)


def finish(kube, name):
    """Let a LOOP end well."""
    kube("exec", kube.pod_of(name), "-c", "trainer", "--", "touch", "/scratch/finish")


def with_folder(job, folder):
    """Mount a folder of the node at /checkpoints."""
    spec = job["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "checkpoints", "hostPath": {"path": str(folder)}})
    spec["containers"][0]["volumeMounts"].append({"name": "checkpoints", "mountPath": "/checkpoints"})
    return job
