import pytest

from stepwarden_operator.observe import Exit, read_child, read_pod, seconds_of, timestamp


def pod(**status):
    return {
        "metadata": {
            "name": "tiny-1-x",
            "uid": "p1",
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
        },
        "status": status,
    }


def container(name="trainer", **state):
    return {"name": name, "state": state}


def test_a_pod_that_has_no_status_yet():
    seen = read_pod(pod(), "trainer")
    assert (seen.index, seen.up, seen.problem, seen.exit) == (1, False, None, None)


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ({"running": {}}, True),
        ({"terminated": {"exitCode": 0}}, True),
        ({"terminated": {"exitCode": 1}}, False),
        ({"waiting": {"reason": "PodInitializing"}}, False),
        ({}, False),
    ],
)
def test_a_pod_is_up_while_its_trainer_runs_or_has_ended_well(state, up):
    assert read_pod(pod(containerStatuses=[container(**state)]), "trainer").up is up


@pytest.mark.parametrize("where", ["initContainerStatuses", "containerStatuses"])
def test_a_container_that_waits_for_something_wrong_is_the_problem(where):
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    seen = read_pod(pod(**{where: [container("any", waiting=waiting)]}), "trainer")
    assert seen.problem == ("ImagePullBackOff", "container any: no such image")


def test_a_container_that_waits_for_the_one_before_it_is_no_problem():
    waiting = {"reason": "PodInitializing"}
    assert read_pod(pod(containerStatuses=[container(waiting=waiting)]), "trainer").problem is None


def test_a_pod_without_a_node_says_why():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert read_pod(pod(conditions=[condition]), "trainer").problem == ("Unschedulable", "0/1 nodes")


def test_the_last_lines_of_a_crash():
    lines = "\n".join(f"line {number}" for number in range(30))
    ended = {"exitCode": 3, "reason": "Error", "message": lines, "finishedAt": "2026-01-01T00:00:00Z"}
    seen = read_pod(pod(containerStatuses=[container(terminated=ended)]), "trainer").exit
    assert seen.code == 3
    assert seen.log.splitlines() == [f"line {number}" for number in range(10, 30)]


def test_a_line_without_end_is_cut():
    ended = {"exitCode": 1, "message": "x" * 10_000}
    assert len(read_pod(pod(containerStatuses=[container(terminated=ended)]), "trainer").exit.log) == 2048


def test_a_sidecar_never_says_how_a_pod_ended():
    statuses = [container("stepwarden-sidecar", terminated={"exitCode": 143})]
    assert read_pod(pod(initContainerStatuses=statuses), "trainer").exit is None


def test_another_container_may_be_to_blame():
    statuses = [container("fetch-data", terminated={"exitCode": 2, "reason": "Error"})]
    seen = read_pod(pod(initContainerStatuses=statuses), "trainer")
    assert seen.exit == Exit(code=2, reason="Error", log="")


def test_a_job_that_its_controller_has_not_seen():
    body = {"metadata": {"uid": "j", "creationTimestamp": "t"}, "spec": {"suspend": True}}
    child = read_child(body)
    assert (child.suspend, child.suspended, child.complete, child.failed) == (True, False, None, None)


def test_a_condition_counts_only_while_it_is_true():
    conditions = [
        {"type": "Suspended", "status": "False", "lastTransitionTime": "t1"},
        {"type": "Failed", "status": "True", "lastTransitionTime": "t2", "reason": "PodFailurePolicy"},
    ]
    child = read_child({"metadata": {"uid": "j"}, "status": {"conditions": conditions}})
    assert (child.suspended, child.failed, child.failed_reason) == (False, "t2", "PodFailurePolicy")


def test_times_are_the_apis():
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert seconds_of(timestamp(1_800_000_000)) == 1_800_000_000


def left_by_hub(message):
    state = {"terminated": {"exitCode": 0, "message": message}}
    sidecar = {"name": "stepwarden-sidecar", "state": state}
    return read_pod(
        {"metadata": {"name": "p", "uid": "u"}, "status": {"initContainerStatuses": [sidecar]}}, "trainer"
    ).left


def test_what_the_hub_left_behind_is_read():
    line = (
        '{"kind": "NonFiniteGradient", "severity": "critical", "step": 7, "message": "m", "ranks": [0, 1]}\n'
    )
    [found] = left_by_hub(line)
    assert (found.kind, found.step, found.ranks) == ("NonFiniteGradient", 7, (0, 1))


def test_other_words_in_its_place_are_none():
    assert left_by_hub("Traceback (most recent call last): ...") == ()
