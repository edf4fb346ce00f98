"""The example, as the README has it: applied, held before the damage, looked at, resumed, complete."""

import re

import yaml
from support.kube import until
from support.trainers import ROOT, dress, loop_job

NAME = "nan-example"


def example():
    manifest = (ROOT / "examples" / "nan" / "job.yaml").read_text(encoding="utf-8")
    job, *rest = yaml.safe_load_all(manifest)
    return dress(job), *rest


def held_ranks(kube, name):
    """Ask each pod's sidecar which of its ranks are held."""
    path = f"/api/v1/namespaces/{kube.namespace}/pods/{{pod}}:8475/proxy/metrics"
    metrics = "".join(kube("get", "--raw", path.format(pod=pod)) for pod in sorted(kube.pods(name)))
    return dict(re.findall(r'stepwarden_rank_held\{[^}]*rank="(\d+)"[^}]*\} (\S+)', metrics))


def test_a_nan_is_held_seen_and_resumed(kube):
    kube.apply(*example())
    kube.until_state(NAME, "Running")
    before = kube.pods(NAME)
    assert len(before) == 2
    assert kube.get("service", NAME)["spec"]["clusterIP"] == "None"
    assert kube.get("job", NAME)["spec"]["completionMode"] == "Indexed"

    row = kube.until_state(NAME, "Held")
    assert list(row) == ["NAME", "STATE", "STEP", "RANKS", "FINDINGS", "AGE"]
    assert row["RANKS"] == "2/2"
    until("what made it is found as well", lambda: kube.row(NAME)["FINDINGS"] == "2", 10)
    assert kube.pods(NAME) == before
    assert held_ranks(kube, NAME) == {"0": "1.0", "1": "1.0"}
    status = kube.get("tj", NAME)["status"]
    found = {finding["kind"]: finding for finding in status["findings"]}
    assert set(found) == {"NonFiniteGradient", "NonFiniteActivation"}
    finding = found["NonFiniteGradient"]
    assert (finding["rank"], finding["op"]) == (1, "div")
    assert finding["parameter"]
    assert finding["step"] == int(row["STEP"])
    assert status["ranks"]["held"] == status["ranks"]["total"] == 2
    assert status["pause"]["action"] == "Hold"
    assert kube.condition(NAME, "Held")["reason"] in found

    said = kube.plugin("findings", NAME)
    assert "NonFiniteGradient" in said
    assert finding["parameter"] in said
    assert "step" in kube.plugin("logs", NAME)

    kube.plugin("resume", NAME)
    kube.until_state(NAME, "Complete")
    assert kube.pods(NAME) == before
    assert kube.row(NAME)["FINDINGS"] == "2"
    until("the last Event", lambda: ("Completed", 1) in kube.events(NAME), 10)
    told = ["Created", "Started", "FindingMade", "FindingMade", "Held", "Resumed", "Completed"]
    assert sorted(kube.events(NAME)) == sorted((reason, 1) for reason in told)
    described = kube("describe", "tj", NAME)
    story = described[described.index("Events:") :]
    assert sorted(told, key=story.index) == told
    assert "rank 1" in story


def digests(kube, name, index):
    """Read what a rank said of its parameters: before each step, and in the end."""
    log = kube("logs", kube.pod_of(name, index), "-c", "trainer")
    return dict(re.findall(r"rank \d+ (?:step )?(\w+) parameters (\w+)", log))


def test_the_poisoned_update_is_taken_only_if_one_says_so(kube):
    bad = 5
    for name in ("skipped", "applied"):
        policy = [{"kinds": ["NonFiniteGradient"], "action": "Hold"}]
        kube.apply(*loop_job(name, nodes=2, env={"BAD_STEP": bad, "STEPS": bad + 1}, onFinding=policy))
    for name in ("skipped", "applied"):
        kube.until_state(name, "Held")
        for index in (0, 1):
            said = digests(kube, name, index)
            assert list(said) == [str(step) for step in range(bad + 1)]
            assert "poisoned" not in said.values()
    kube.plugin("resume", "skipped")
    kube.plugin("resume", "applied", "--update=apply")
    for name in ("skipped", "applied"):
        kube.until_state(name, "Complete")
    for index in (0, 1):
        said = digests(kube, "skipped", index)
        assert said["end"] == said[str(bad)] != said[str(bad - 1)]
        assert digests(kube, "applied", index)["end"] == "poisoned"
