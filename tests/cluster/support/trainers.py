"""TrainingJobs for tests: the user's side of the cluster, cheap to run."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOST_IMAGE = "cluster.test/host:1"
IMAGE = os.environ.get("STEPWARDEN_TEST_IMAGE")  # has torch; without it, pods use this machine's own files

# Takes steps until a file says that it is enough; says each step, and what the parameters were before it.
LOOP = """
import hashlib, os, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
rank, bad = int(os.environ["RANK"]), int(os.environ.get("BAD_STEP", -1))
for step in range(int(os.environ.get("STEPS", 1_000_000))):
    if os.path.exists("/work/finish"):
        break
    optimizer.zero_grad()
    loss = model(torch.ones(1, 4)).pow(2).mean()
    if step == bad and rank == int(os.environ.get("BAD_RANK", 0)):
        model.weight.register_hook(lambda grad: grad * float("nan"))
    loss.backward()
    model.weight._backward_hooks = None
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()[:12]
    print(f"rank {rank} step {step} parameters {digest}", flush=True)
    optimizer.step()
    time.sleep(0.05)
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


def loop_job(name, **rest):
    """Put a TrainingJob of LOOP, and the ConfigMap that brings it the script."""
    job = training_job(name, ["torchrun", "/srv/loop.py"], **rest)
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["volumeMounts"] += [
        {"name": "script", "mountPath": "/srv"},
        {"name": "work", "mountPath": "/work"},
    ]
    spec["volumes"] += [
        {"name": "script", "configMap": {"name": name}},
        {"name": "work", "emptyDir": {}},
    ]
    script = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"loop.py": LOOP}}
    return job, script
