import copy
import sys
from pathlib import Path

import pytest
import yaml

from stepwarden.cli import documents, groups, manifest, volumes
from stepwarden.cli.failure import UsageError
from stepwarden.reproducibility import Reproducibility

NAN = Path(__file__).parents[2] / "examples" / "nan" / "job.yaml"
GOOD = {
    "apiVersion": "stepwarden.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "tiny"},
    "spec": {
        "template": {
            "spec": {"containers": [{"name": "trainer", "image": "x", "command": ["torchrun", "train.py"]}]}
        }
    },
}
TRAINER = ("spec", "template", "spec", "containers", 0)


def changed(*changes):
    """GOOD with values put at paths."""
    job = copy.deepcopy(GOOD)
    for path, value in changes:
        at = job
        for key in path[:-1]:
            at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
        at[path[-1]] = value
    return job


def read(*objects):
    return manifest.read(documents.split(documents.parse(yaml.safe_dump_all(objects))))


def test_defaults():
    job = read(GOOD)
    assert (job.name, job.namespace, job.nodes, job.procs) == ("tiny", "default", 1, 1)
    assert job.command == ("torchrun", "train.py")
    assert (job.hold, job.suspend) == (False, False)


def test_an_option_goes_before_the_manifest():
    job = read(changed((("spec", "reproducibility"), {"seed": 3, "threads": 2})))
    both = Reproducibility(seed=7).over(job.reproducibility)
    assert both == Reproducibility(seed=7, threads=2)


def test_the_example():
    job = manifest.read(documents.load(NAN))
    assert (job.nodes, job.procs) == (2, 1)
    assert [rule.action for rule in job.rules] == ["Hold", "Fail"]


RULE = ("spec", "onFinding")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (changed((("apiVersion",), "v1")), "apiVersion is 'v1'"),
        (changed((("metadata",), {})), "metadata.name is missing"),
        (changed((("spec",), {})), "spec.template is missing"),
        (changed((("spec",), [])), r"TrainingJob.spec must be a mapping, not \[\]"),
        (changed((("spec", "numNodes"), 0)), "spec.numNodes is 0"),
        (changed((("spec", "numNodes"), "two")), "spec.numNodes must be a whole number, not 'two'"),
        (changed((("spec", "numProcPerNode"), "many")), "spec.numProcPerNode is 'many'"),
        (changed((("spec", "hold"), "yes")), "spec.hold must be true or false, not 'yes'"),
        (changed((("spec", "onFindings"), [])), "unknown field 'onFindings' in spec"),
        (
            changed((("spec", "reproducibility"), {"seed": -1})),
            "reproducibility.seed is -1: give a whole",
        ),
        (changed((("spec", "reproducibility"), {"threads": True})), "reproducibility.threads is True"),
        (
            changed((("spec", "reproducibility"), {"deterministic": "yes"})),
            "deterministic must be true or false, not 'yes'",
        ),
        (changed((("spec", "reproducibility"), {"sed": 1})), "unknown field 'sed' in spec.reproducibility"),
        (changed((("spec", "reproducibility"), 1)), "spec.reproducibility must be a mapping"),
        (changed((RULE, [{"kinds": ["NaN"], "action": "Hold"}])), "'NaN' is not a kind"),
        (changed((RULE, [{"kinds": ["RankFailed"], "action": "Panic"}])), "'Panic' is not an action"),
        (changed((RULE, [{"kinds": "RankFailed", "action": "Fail"}])), "kinds must be a list"),
        (changed((RULE, [{"action": "Restart", "times": 0}])), "times is 0 in onFinding"),
        (changed((RULE, [{"action": "Hold", "timeout": "1 day", "then": "Fail"}])), "is not a duration"),
        (changed((RULE, [{"action": "Hold", "timeout": "1h"}])), "timeout and then belong together"),
        (
            changed((RULE, [{"action": "Hold", "timeout": "1h", "then": "Hold"}])),
            "then is 'Hold': give one of",
        ),
        (changed((RULE, [{"action": "Hold", "wait": "1h"}])), "unknown field 'wait' in onFinding"),
        (changed((RULE, ["Hold"])), r"spec.onFinding\[0\] must be a mapping"),
        (changed((TRAINER[:-1], [])), "containers is empty"),
        (changed((TRAINER[:-1], [{"name": "a"}, {"name": "b"}])), "which container runs the ranks"),
        (changed(((*TRAINER, "command"), [])), "container 'trainer' has no command"),
        (changed(((*TRAINER, "command"), ["torchrun", 1])), r"command\[1\] must be a string, not 1"),
        (changed(((*TRAINER, "envFrom"), [{}])), "envFrom can't be followed"),
        (changed(((*TRAINER, "env"), [{"name": "PET_NNODES", "value": "1"}])), "sets PET_NNODES"),
        (
            changed(((*TRAINER, "env"), [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}])),
            "valueFrom of A can't be followed",
        ),
        (changed(((*TRAINER, "env"), [{"name": "A", "value": 1}])), "env A.value must be a string, not 1"),
    ],
)
def test_a_bad_manifest_gets_a_sentence(job, said):
    with pytest.raises(UsageError, match=said):
        read(job)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b\nc: [", "line 2: not YAML|line 3: not YAML"),
        ("- a\n", "document 1 is no Kubernetes object"),
        ("kind: Pod\n", "no TrainingJob in it: it holds Pod"),
        ("", "no TrainingJob in it"),
        ("kind: TrainingJob\n---\nkind: TrainingJob\n", "2 TrainingJobs in it"),
    ],
)
def test_a_bad_file_gets_a_sentence(text, said):
    with pytest.raises(UsageError, match=said):
        documents.split(documents.parse(text))


def test_what_a_local_run_leaves_out_is_said():
    job = changed((TRAINER[:-1], [*GOOD["spec"]["template"]["spec"]["containers"], {"name": "web"}]))
    said = read(job, {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}}).ignored
    assert said[0] == "Service in the file is ignored"
    assert "containers web are ignored" in said[1]
    assert "image x is ignored" in said[2]


def mounted(volume, *maps, path="/data"):
    job = changed(
        (("spec", "template", "spec", "volumes"), [{"name": "v", **volume}]),
        ((*TRAINER, "volumeMounts"), [{"name": "v", "mountPath": path}]),
    )
    return read(job, *maps)


CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c"},
    "data": {"a.txt": "ä"},
    "binaryData": {"b.bin": "AP8="},
}


def test_a_config_map_is_written_to_the_byte(tmp_path):
    job = mounted({"configMap": {"name": "c"}}, CONFIG)
    folder = volumes.place(job, tmp_path, tmp_path / "scratch")["v"]
    assert (folder / "a.txt").read_text(encoding="utf-8") == "ä"
    assert (folder / "b.bin").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize(
    "volume", [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "p"}}, {"hostPath": {"path": "/"}}]
)
def test_other_volumes_are_folders(tmp_path, volume):
    assert volumes.place(mounted(volume), tmp_path, tmp_path / "scratch")["v"].is_dir()


@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ({"secret": {"secretName": "s"}}, "volume 'v' is a secret"),
        ({"configMap": {"name": "other"}}, "ConfigMap 'other' is mounted, but not in the same file"),
        ({"configMap": {"name": "c", "items": [{"key": "a.txt", "path": "../x"}]}}, "can't put it at '../x'"),
        ({"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}, "has no key 'z'"),
    ],
)
def test_a_volume_that_is_not_here_gets_a_sentence(tmp_path, volume, said):
    with pytest.raises(UsageError, match=said):
        volumes.place(mounted(volume, CONFIG), tmp_path, tmp_path / "scratch")


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("/data", "/L/d"),
        ("/data/x.py", "/L/d/x.py"),
        ("--in=/data/a:/data/b", "--in=/L/d/a:/L/d/b"),
        ("/data/deep/x", "/L/deep/x"),
        ("/database", "/database"),
        ("/other/data", "/other/data"),
        ("/data.txt", "/data.txt"),
    ],
)
def test_paths_below_a_mount_are_rewritten(text, here):
    assert volumes.rewrite(text, {"/data": Path("/L/d"), "/data/deep": Path("/L/deep")}) == here


def test_variables_in_a_command():
    assert volumes.expand("$(A)-$$(A)-$(B)", {"A": "1"}) == "1-$(A)-$(B)"


def test_a_pod_is_a_torchrun_of_this_environment():
    job = read(
        changed(
            (("spec", "numNodes"), 2),
            ((*TRAINER, "env"), [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            ((*TRAINER, "args"), ["$(POD)"]),
        )
    )
    first, second = groups.of_manifest(job, 3, 1234, [{}, {}])
    assert second.command == (sys.executable, "-m", "torch.distributed.run", "train.py", "tiny-1")
    assert first.env["PET_NODE_RANK"] == "0"
    assert second.env["PET_NODE_RANK"] == "1"
    assert (second.env["PET_NNODES"], second.env["PET_NPROC_PER_NODE"]) == ("2", "3")
    assert "STEPWARDEN_RANK" not in second.env
