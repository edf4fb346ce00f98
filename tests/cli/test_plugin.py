import json
import subprocess
import sys

import pytest

JOB = {
    "metadata": {"name": "tiny"},
    "spec": {"numNodes": 2, "numProcPerNode": 2, "template": {"spec": {"containers": [{"name": "main"}]}}},
    "status": {
        "findings": [
            {
                "kind": "NonFiniteGradient",
                "severity": "critical",
                "step": 42,
                "rank": 1,
                "ranks": [0, 1],
                "parameter": "a.weight",
                "message": "4 NaN in 4 values",
            }
        ],
        "pause": {"action": "Hold", "since": "2026-01-01T00:00:00Z", "step": 42, "findings": ["x"]},
    },
}
KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if "get" in sys.argv:
    if "gone" in sys.argv:
        sys.exit('Error from server (NotFound): trainingjobs "gone" not found')
    print((folder / "job.json").read_text())
"""


class Cluster:
    """The other side of the plugin: a kubectl that answers from a file and writes down how it is called."""

    def __init__(self, folder):
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.job(JOB)

    def job(self, job):
        (self.folder / "job.json").write_text(json.dumps(job))

    def __call__(self, *arguments):
        command = [sys.executable, "-m", "stepwarden.cli.plugin", *arguments]
        return subprocess.run(
            command, env={"PATH": str(self.folder)}, capture_output=True, text=True, check=False
        )

    def last(self):
        return json.loads((self.folder / "calls").read_text().splitlines()[-1])

    def patched(self):
        return json.loads(self.last()[-1])


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_findings(cluster):
    said = cluster("findings", "tiny").stdout
    assert said.splitlines() == [
        "step 42: NonFiniteGradient (critical), began on rank 1, seen on ranks 0, 1",
        "  parameter a.weight",
        "  4 NaN in 4 values",
        "",
        "It is paused (Hold) at step 42. To go on without that update, or with it:",
        "  kubectl stepwarden resume tiny [--update skip|apply]",
    ]


def test_findings_as_json(cluster):
    assert json.loads(cluster("findings", "tiny", "-o", "json").stdout) == JOB["status"]["findings"]


def test_no_findings(cluster):
    cluster.job({"spec": {}})
    assert cluster("findings", "tiny").stdout == "tiny: no findings\n"


def test_where_to_look_is_handed_on(cluster):
    cluster("findings", "tiny", "-n", "ml", "--context", "c", "--kubeconfig", "k")
    assert cluster.last()[:3] == ["--namespace=ml", "--context=c", "--kubeconfig=k"]


def test_hold(cluster):
    done = cluster("hold", "tiny")
    assert (done.returncode, cluster.patched()) == (0, {"spec": {"hold": True}})
    assert "spec.hold is true now" in done.stdout


@pytest.mark.parametrize(("given", "update"), [((), "skip"), (("--update", "apply"), "apply")])
def test_resume_after_a_finding(cluster, given, update):
    done = cluster("resume", "tiny", *given)
    assert cluster.patched() == {"metadata": {"annotations": {"stepwarden.dev/acknowledge": f"42,{update}"}}}
    assert "findings up to step 42 are acknowledged" in done.stdout


@pytest.mark.parametrize(
    ("run", "attempt", "said"), [(0, 0, "42,skip"), (2, 0, "42,skip,2"), (0, 1, "42,skip,0,1")]
)
def test_resume_names_run_and_attempt_of_what_it_resumes(cluster, run, attempt, said):
    pause = JOB["status"]["pause"] | ({"attempt": attempt} if attempt else {})
    before = {"step": 50, "run": max(0, run - 1)}  # of an earlier run or attempt
    known = {} if run == attempt == 0 else {"acknowledged": before}
    cluster.job(JOB | {"status": JOB["status"] | {"pause": pause, "run": run} | known})
    cluster("resume", "tiny")
    assert cluster.patched() == {"metadata": {"annotations": {"stepwarden.dev/acknowledge": said}}}


def test_resume_after_a_persons_hold(cluster):
    cluster.job({"spec": {"hold": True}})
    assert cluster("resume", "tiny").stdout == "tiny: spec.hold is false now\n"
    assert cluster.patched() == {"spec": {"hold": False}}


def test_nothing_to_resume(cluster):
    cluster.job(JOB | {"status": JOB["status"] | {"acknowledged": {"step": 42}}})
    done = cluster("resume", "tiny")
    assert (done.returncode, done.stdout) == (1, "tiny: nothing to resume: it isn't held\n")


@pytest.mark.parametrize(
    ("given", "selector"),
    [
        ((), "stepwarden.dev/job=tiny"),
        (("--rank", "3"), "stepwarden.dev/job=tiny,batch.kubernetes.io/job-completion-index=1"),
        (("--node", "0"), "stepwarden.dev/job=tiny,batch.kubernetes.io/job-completion-index=0"),
    ],
)
def test_logs(cluster, given, selector):
    cluster("logs", "tiny", *given)
    assert cluster.last() == ["logs", "-l", selector, "-c", "main", "--prefix", "--tail=-1"]


def test_logs_that_follow(cluster):
    cluster("logs", "tiny", "-f", "--tail", "5")
    assert cluster.last()[-3:] == ["--tail=5", "-f", "--max-log-requests=5"]


def test_a_job_that_is_not_there_is_told_by_kubectl(cluster):
    done = cluster("findings", "gone")
    assert (done.returncode, done.stderr) == (
        1,
        'Error from server (NotFound): trainingjobs "gone" not found\n',
    )


def test_without_kubectl(tmp_path):
    command = [sys.executable, "-m", "stepwarden.cli.plugin", "hold", "tiny"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "stepwarden: error: there is no kubectl in PATH\n")
