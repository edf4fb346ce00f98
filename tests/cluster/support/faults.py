"""Tries one fault in a rank of a TrainingJob of two pods, and takes down what is seen and when."""

import contextlib
import secrets
import shutil
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

from faultbook import NO_HUB, NO_OPERATOR, NO_ROOM, NO_SIDECAR
from faulttrial import ENOUGH, Outcome, environment, gone, step_of, tellings
from support.kube import until
from support.node import cut_off, fill, kill_container, kill_operator, small_volume
from support.trainers import ROOT, training_job, with_script

FAULTS = (ROOT / "tests" / "faults" / "trainer.py").read_text()
SIDECAR, RUN = "stepwarden-sidecar", "stepwarden-run"  # a container and a volume of the injected
SCRATCH = "/scratch"  # in the pods; on the node it is a folder of the trial's own


def faulty_job(name, fault, env, *, ranks, folder):
    """Put two pods under torchrun with the ranks of a training in which one meets a fault."""
    job = training_job(name, ["torchrun", "/srv/train.py"], nodes=2, env=env, numProcPerNode=ranks // 2)
    if fault.name == "oom":
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "2Gi"}}
    if fault.beside == NO_ROOM:
        waits_for(job, name)
    return with_script(job, FAULTS, {"hostPath": {"path": str(folder)}})


def waits_for(job, secret):
    """Let no container start before there is a Secret; the pod's other volumes are made meanwhile."""
    spec = job["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "gate", "secret": {"secretName": secret}})
    spec["containers"][0]["volumeMounts"].append({"name": "gate", "mountPath": "/gate"})


@contextlib.contextmanager
def killed(pod):
    """Kill a pod's trainer whole."""
    kill_container(pod, "trainer")
    yield


LOSES_SIDECAR = {NO_HUB: 0, NO_SIDECAR: 1}  # the pod: the first one's is the hub
OUTSIDE = {"container": killed, "cut": cut_off}  # what is done to a rank's pod


class Trial:
    """One TrainingJob."""

    def __init__(self, kube, cluster, fault, *, ranks, rank, step):  # noqa: PLR0913 - all named
        """Begin; `cluster` is the namespace in which the operator runs."""
        self.name = f"fault-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.gettempdir(), self.name)
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.kube, self.cluster, self.fault = kube, cluster, fault
        self.ranks, self.rank, self.step = ranks, rank, step
        self.began = self.folder / self.name
        env = environment(fault, rank, step, f"{SCRATCH}/{self.began.name}")
        self.followers, self.pods, self.volumes, self.found = [], [], [], {}
        kube.apply(*faulty_job(self.name, fault, env, ranks=ranks, folder=self.folder))

    def play(self):
        """See it through, and return what was seen."""
        try:
            self.follow()
            self.breaks()
            shown = self.meets()
            if self.fault.lives:
                self.kube("delete", "tj", self.name, "--wait=false")
            ended = gone(self.began.name)
            return self.outcome(shown, ended)
        finally:
            self.stop()

    def follow(self):
        """Follow the pods' logs: a job that fails takes its pods with it."""
        self.pods = [self.kube.pod_of(self.name, index) for index in range(2)]
        if self.fault.beside == NO_ROOM:
            self.volumes = [small_volume(self.kube.get("pod", pod), RUN) for pod in self.pods]
            self.kube("create", "secret", "generic", self.name)
        for pod in self.pods:
            until("a container", lambda pod=pod: self.running(pod), told=lambda: self.kube.told(self.name))
            argv = ["kubectl", f"--namespace={self.kube.namespace}", "logs", "-f", "--timestamps", pod]
            with self.log(pod).open("w") as file:
                self.followers.append(
                    subprocess.Popen([*argv, "-c", "trainer"], env=self.kube.env, stdout=file)
                )

    def log(self, pod):
        return self.folder / f"{pod}.log"

    def running(self, pod):
        statuses = self.kube.get("pod", pod)["status"].get("containerStatuses", [])
        return any({"running", "terminated"} & one["state"].keys() for one in statuses)

    def until_step(self, step):
        until(f"step {step}", lambda: step_of(self.folder) >= step, told=lambda: self.kube.told(self.name))

    def breaks(self):
        """Break what is to be broken before the fault."""
        if self.fault.beside:
            self.until_step(5)
        if self.fault.beside in LOSES_SIDECAR:
            kill_container(self.kube.get("pod", self.pods[LOSES_SIDECAR[self.fault.beside]]), SIDECAR)
        for volume in self.volumes:
            assert any(volume.rglob("rank-*.sock")), f"no rank has its socket in {volume}"
            fill(volume)
        if self.fault.beside == NO_OPERATOR:
            kill_operator(self.cluster)

    def meets(self):
        """Wait until the fault has begun, or do it, and until its finding is in the status; return when."""
        if self.fault.way != "":
            until("the fault", self.began.exists, told=lambda: self.kube.told(self.name))
            return self.seen()
        self.until_step(self.step)
        pod = self.kube.get("pod", self.pods[self.rank // (self.ranks // 2)])
        self.began.write_text(str(time.time()))
        with OUTSIDE[self.fault.name](pod):
            return self.seen()

    def seen(self):
        """Wait for the finding in the status and the word in the logs; return when the finding was there."""
        end, shown = time.monotonic() + ENOUGH, None
        while time.monotonic() < end and not (shown and self.all_told()):
            if not shown and (found := self.findings()):
                shown, self.found = time.time(), found[0]
            time.sleep(0.1)
        return shown

    def all_told(self):
        return not self.fault.told or len(self.told()) >= self.ranks - 1

    def findings(self):
        status = (self.kube.get("tj", self.name) or {}).get("status", {})
        return [found for found in status.get("findings", []) if found["severity"] != "info"]

    def told(self):
        """Return when a rank's log said that another one is in trouble."""
        return tellings((datetime.fromisoformat(line.split()[0]).timestamp(), line) for line in self.lines())

    def lines(self):
        return [line for pod in self.pods for line in self.log(pod).read_text().splitlines()]

    def outcome(self, shown, ended):
        began = float(self.began.read_text())
        return Outcome(
            kind=self.found.get("kind"),
            rank=self.found.get("rank"),
            message=self.found.get("message", ""),
            found=shown and shown - began,
            told={rank: when - began for rank, when in self.told().items()},
            ended=ended - began,
            lines=self.lines(),
        )

    def stop(self):
        self.kube.tries("delete", "tj,configmap,secret", self.name, "--wait=false")
        gone(self.began.name)
        for process in self.followers:
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
