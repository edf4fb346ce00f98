"""A manifest that can't be meant is refused by `kubectl apply`, in a sentence that says what to do."""

import json

import pytest
from support.trainers import shell_job


def changed(**spec):
    job = shell_job("bad", "true")
    job["spec"] |= spec
    return job


def without_template():
    job = shell_job("bad", "true")
    del job["spec"]["template"]
    return job


def two_candidates():
    job = shell_job("bad", "true")
    containers = job["spec"]["template"]["spec"]["containers"]
    containers[0]["name"] = "one"
    containers.append({**containers[0], "name": "two"})
    return job


BAD = {
    "no template": (without_template(), "spec.template is missing"),
    "two candidate containers": (two_candidates(), "which container runs the ranks?"),
    "numNodes 0": (changed(numNodes=0), "numNodes"),
    "an unknown kind": (
        changed(onFinding=[{"kinds": ["NaN"], "action": "Hold"}]),
        'Unsupported value: "NaN"',
    ),
    "an unknown action": (changed(onFinding=[{"action": "Panic"}]), 'Unsupported value: "Panic"'),
    "times of what is no restart": (
        changed(onFinding=[{"action": "Hold", "times": 2}]),
        "times bounds the restarts of a rule",
    ),
    "exit codes that are retried anyway": (
        changed(retryableExitCodes=[42]),
        "spec.retryableExitCodes needs spec.restartPolicy: ExitCode",
    ),
    "a folder that may be anywhere": (
        changed(checkpoint={"directory": "checkpoints"}),
        "spec.checkpoint.directory must be a path that begins with /",
    ),
    "a name too long": (shell_job("a" * 58, "true"), "metadata.name is too long"),
    "a name with dots": (shell_job("a.b", "true"), "metadata.name must be a DNS label"),
    "our variable": (shell_job("bad", "true", env={"STEPWARDEN_DIR": "/"}), "set by Stepwarden"),
    "torchrun's variable": (shell_job("bad", "true", env={"MASTER_PORT": "1"}), "set by Stepwarden"),
}


@pytest.mark.parametrize("what", BAD)
def test_apply_refuses(cluster, what):
    job, sentence = BAD[what]
    done = cluster.at("default").tries("apply", "-f", "-", stdin=json.dumps(job))
    assert done.returncode != 0
    assert sentence in done.stderr
