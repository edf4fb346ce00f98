"""The operator may die at any moment: the same end, one Job, no second Event, no lost finding."""

import json

import pytest
from support.kube import until
from support.node import OPERATOR, kill_operator
from support.trainers import loop_job, shell_job

SYSTEM = "stepwarden-system"


def resume(kube, name):
    """Do what the plugin does, without waiting for anything."""
    step = kube.get("tj", name)["status"]["findings"][0]["step"]
    kube("annotate", "tj", name, f"stepwarden.dev/acknowledge={step},skip")


def test_killed_at_every_turn_of_the_story(cluster, kube):
    policy = [{"kinds": ["*"], "severity": "critical", "action": "Hold"}]
    kube.apply(*loop_job("story", nodes=2, env={"BAD_STEP": 10, "STEPS": 20}, onFinding=policy))
    kill_operator(cluster)
    kube.until_state("story", "Running")
    before, job = kube.pods("story"), kube.get("job", "story")["metadata"]["uid"]
    kill_operator(cluster)
    kube.until_state("story", "Held")
    kill_operator(cluster)
    resume(kube, "story")
    kill_operator(cluster)
    kube.until_state("story", "Complete")
    kill_operator(cluster)
    assert [found["metadata"]["uid"] for found in kube.items("jobs")] == [job]
    assert kube.pods("story") == before
    [finding] = kube.get("tj", "story")["status"]["findings"]
    assert (finding["kind"], finding["step"]) == ("NonFiniteGradient", 10)
    until("the last Event", lambda: ("Completed", 1) in kube.events("story"), 120)
    told = ["Created", "Started", "FindingMade", "Held", "Resumed", "Completed"]
    assert sorted(kube.events("story")) == sorted((reason, 1) for reason in told)


@pytest.mark.alone
def test_deleted_while_the_operator_is_away(cluster, kube):
    kube.apply(shell_job("orphan", "sleep 1000"))
    kube.until_state("orphan", "Running")
    [deployment] = cluster.items("deployments", "-l", OPERATOR)
    name = deployment["metadata"]["name"]
    cluster("scale", "deployment", name, "--replicas=0")
    try:
        until("no operator", lambda: not cluster.items("pods", "-l", OPERATOR), 120)
        kube("delete", "tj", "orphan", "--wait", "--timeout=30s")
        kinds = "jobs,pods,services,secrets"
        until("the children are gone", lambda: not kube.items(kinds), 120, lambda: kube.told("orphan"))
        kube.apply(shell_job("late", "true"))
        assert kube.row("late")["STATE"] == ""
    finally:
        cluster("scale", "deployment", name, "--replicas=1")
    kube.until_state("late", "Complete")


def test_the_operator_may_not_read_what_it_has_no_business_with(cluster):
    [deployment] = cluster.items("deployments", "-l", OPERATOR)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    user = f"--as=system:serviceaccount:{SYSTEM}:{account}"

    def may(*words):
        return cluster.tries("auth", "can-i", *words, "-A", user).stdout.strip() == "yes"

    assert may("list", "trainingjobs.stepwarden.dev")
    assert may("patch", "trainingjobs.stepwarden.dev", "--subresource=status")
    assert may("list", "pods")
    refused = [
        ("get", "secrets"),
        ("list", "secrets"),
        ("patch", "trainingjobs.stepwarden.dev"),
        ("update", "trainingjobs.stepwarden.dev"),
        ("create", "pods"),
        ("get", "configmaps"),
        ("get", "nodes"),
        ("delete", "namespaces"),
        ("*", "*"),
    ]
    assert [words for words in refused if may(*words)] == []


def test_the_operator_runs_unprivileged(cluster):
    [deployment] = cluster.items("deployments", "-l", OPERATOR)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    security = container["securityContext"]
    assert deployment["spec"]["replicas"] == 1
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}, json.dumps(security)
