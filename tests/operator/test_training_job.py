import pytest

from stepwarden_operator.training_job import Acknowledged, SpecError, read_acknowledged, read_training_job


def body(containers=({"name": "main"},), **spec):
    return {
        "metadata": {"name": "tiny", "namespace": "ns", "uid": "u"},
        "spec": {"template": {"spec": {"containers": list(containers)}}, **spec},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Acknowledged()),
        ("47", Acknowledged(step=47, update="skip")),
        ("47,apply", Acknowledged(step=47, update="apply")),
        (" 0 , skip ", Acknowledged(step=0, update="skip")),
        ("47,skip,2", Acknowledged(step=47, run=2)),
        ("47,apply,2,1", Acknowledged(step=47, update="apply", run=2, attempt=1)),
        ("47,apply,2,1,0", Acknowledged()),
        ("-1", Acknowledged()),
        ("all", Acknowledged()),
        ("47,aply", Acknowledged()),
        ("²", Acknowledged()),
    ],
)
def test_an_annotation_that_makes_no_sense_acknowledges_nothing(text, expected):
    assert read_acknowledged(text) == expected


@pytest.mark.parametrize(
    ("raw", "limits", "expected"),
    [
        (3, {}, 3),
        ("auto", {}, 1),
        ("auto", {"nvidia.com/gpu": "4", "cpu": "8"}, 4),
        ("auto", {"amd.com/gpu": 2}, 2),
    ],
)
def test_auto_is_the_gpus_of_the_trainers_container(raw, limits, expected):
    job = read_training_job(body([{"name": "x", "resources": {"limits": limits}}], numProcPerNode=raw))
    assert job.ranks_per_node == expected


def test_the_container_named_trainer_runs_the_ranks():
    assert read_training_job(body([{"name": "a"}, {"name": "trainer"}])).trainer == "trainer"
    assert read_training_job(body([{"name": "a"}])).trainer == "a"


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"spec": {}}, "spec.template is missing"),
        (body([{"name": "a"}, {"name": "b"}]), "which container runs the ranks"),
        (body(onFinding=[{"kinds": ["Nonsense"], "action": "Hold"}]), "'Nonsense' is not a kind"),
        (body(reproducibility={"seed": -1}), "spec.reproducibility.seed is -1: give a whole number from 0"),
        (body(reproducibility={"seeds": 1}), "unknown field 'seeds' in spec.reproducibility"),
        (body(onFinding=[{"action": "Hold", "times": 2}]), "times in onFinding bounds restarts"),
        (body(maxRestarts=-1), "spec.maxRestarts is -1: give a whole number, 0 or more"),
        (body(restartPolicy="Always"), "spec.restartPolicy is 'Always': give OnFailure or ExitCode"),
        (body(retryableExitCodes=[300]), "spec.retryableExitCodes has 300: give exit codes, 1 to 255"),
        (body(checkpoint={}), "spec.checkpoint.directory is '': give the folder's path"),
        (body(checkpoint={"directory": "/c", "signal": "USR1"}), "give a signal's name, as in SIGUSR1"),
        (body(checkpoint={"directory": "/c", "gracePeriod": "soon"}), "'soon' is not a duration"),
        (body(onFinding=[{"action": "Hold", "timeout": "soon"}]), "is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(broken, sentence):
    with pytest.raises(SpecError, match=sentence):
        read_training_job(body() | broken)
