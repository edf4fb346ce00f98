"""One rank's trouble, on a real kubelet: a killed container, memory that runs out, a link that is cut."""

import re
import subprocess

import pytest
from faultbook import FAULTS
from support.faults import Trial
from support.kube import until
from support.node import cut_off, kill_container
from support.trainers import loop_job

GREEDY = """
    if rank == 1 and step == 5:
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * (64 << 20))
    optimizer.zero_grad()
"""


@pytest.fixture
def follow(kube, tmp_path):
    """Follow pods' logs into files: a job that fails takes its pods with it."""
    started = []

    def start(pod):
        argv = ["kubectl", f"--namespace={kube.namespace}", "logs", "-f", pod, "-c", "trainer"]
        with (tmp_path / pod).open("w") as file:
            started.append(subprocess.Popen(argv, env=kube.env, stdout=file, stderr=file))
        return tmp_path / pod

    yield start
    for process in started:
        process.terminate()
        process.wait()


def tellers(logs, rank):
    """Return the ranks in whose log is that another one failed."""
    text = "".join(log.read_text() for log in logs)
    return {int(each) for each in re.findall(rf"stepwarden: rank (\d+): rank {rank} failed", text)}


def finding(kube, name, kind):
    found = kube.get("tj", name).get("status", {}).get("findings", [])
    return next((each for each in found if each["kind"] == kind and each["severity"] == "critical"), None)


def test_a_killed_container_is_told_in_the_other_pods_log(kube, follow):
    kube.apply(*loop_job("killed", nodes=2))
    kube.until_step("killed", 5)
    log = follow(kube.pod_of("killed", 0))
    kill_container(kube.get("pod", kube.pod_of("killed", 1)), "trainer")
    kube.until_state("killed", "Failed")
    found = finding(kube, "killed", "RankFailed")
    assert found["rank"] == 1, kube.told("killed")
    until("rank 0 says so", lambda: tellers([log], 1) == {0}, 120, log.read_text)
    assert kube.condition("killed", "Failed")["reason"] == "RankFailed"


def test_the_out_of_memory_killer_is_named(kube):
    job, script = loop_job("hoard", nodes=2)
    script["data"]["train.py"] = script["data"]["train.py"].replace("    optimizer.zero_grad()\n", GREEDY, 1)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
    kube.apply(job, script)
    kube.until_state("hoard", "Failed")
    assert finding(kube, "hoard", "RankFailed")["rank"] == 1, kube.told("hoard")
    assert "OOMKilled" in kube.condition("hoard", "Failed")["message"]


@pytest.mark.usefixtures("folder")  # where the node is this machine
@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("sigkill", 4),
        ("worker", 2),
        ("raise_no_room", 4),
        ("raise_no_hub", 2),
        ("raise_no_sidecar", 2),
        ("sigkill_no_operator", 2),
    ],
)
def test_a_rank_of_another_pod_is_told_in_all_logs(kube, cluster, name, ranks):
    [fault] = [fault for fault in FAULTS if fault.name == name]
    seen = Trial(kube, cluster, fault, ranks=ranks, rank=ranks - 1, step=fault.begins[1]).play()
    said = "\n".join(seen.lines)
    assert (seen.kind, seen.rank) == (fault.kind, ranks - 1), said
    assert "SIGKILL" in seen.message or "sigkill" not in name
    assert set(seen.told) >= set(range(ranks - 1)), said


def test_a_cut_between_two_pods_is_a_hang_of_which_the_pods_say_where_they_are(kube):
    hung = [{"kinds": ["RankHung"], "action": "Fail"}]
    kube.apply(*loop_job("cut", nodes=2, onFinding=hung))
    kube.until_step("cut", 30)
    with cut_off(kube.get("pod", kube.pod_of("cut", 1))):
        found = until("the hang", lambda: finding(kube, "cut", "RankHung"), 120, lambda: kube.told("cut"))
    assert "all_reduce" in str(found)
