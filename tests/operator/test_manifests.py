import pytest

from stepwarden.policy import DEFAULT_RULES, from_json
from stepwarden.reproducibility import Reproducibility, of_environment
from stepwarden_operator.manifests.job import job
from stepwarden_operator.manifests.secret import secret
from stepwarden_operator.manifests.service import service
from stepwarden_operator.settings import Settings
from stepwarden_operator.training_job import read_training_job

SETTINGS = Settings(image="stepwarden:1", key=b"key")


def asked(trainer=None, **spec):
    trainer = {"name": "trainer", "image": "torch"} | (trainer or {})
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {"containers": [{"name": "logs", "image": "l"}, trainer], "nodeSelector": {"gpu": "h200"}},
    }
    return read_training_job(
        {
            "metadata": {"name": "tiny", "namespace": "ns", "uid": "u1"},
            "spec": {"numNodes": 2, "numProcPerNode": 4, "template": template, **spec},
        }
    )


def pod_of(manifest):
    return manifest["spec"]["template"]["spec"]


def env_of(container):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def named(containers, name):
    return next(container for container in containers if container["name"] == name)


@pytest.fixture
def manifest():
    return job(asked(), SETTINGS, suspend=False)


def test_every_child_is_the_training_jobs_own(manifest):
    for child in (manifest, service(asked()), secret(asked(), b"key")):
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("u1", True, True)
        assert child["metadata"]["labels"]["stepwarden.dev/job"] == "tiny"


def test_the_job_is_indexed_and_only_the_trainer_decides_it(manifest):
    spec = manifest["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 2
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    ignore, fail = spec["podFailurePolicy"]["rules"]
    assert ignore["action"] == "Ignore"
    assert fail["onExitCodes"] == {"containerName": "trainer", "operator": "NotIn", "values": [0]}


def test_what_the_user_gave_stays(manifest):
    meta, spec = manifest["spec"]["template"]["metadata"], pod_of(manifest)
    assert meta["labels"] == {
        "team": "a",
        "stepwarden.dev/job": "tiny",
        "app.kubernetes.io/managed-by": "stepwarden-operator",
    }
    assert meta["annotations"]["note"] == "b"
    assert spec["nodeSelector"] == {"gpu": "h200"}
    assert spec["containers"][0] == {"name": "logs", "image": "l"}


def test_what_makes_a_run_repeatable_is_there_before_the_interpreter_starts():
    spec = {"seed": 7, "threads": 2, "deterministic": True}
    pod = pod_of(job(asked(reproducibility=spec), SETTINGS, suspend=False))
    env = env_of(named(pod["containers"], "trainer"))
    assert (env["PYTHONHASHSEED"], env["OMP_NUM_THREADS"], env["MKL_NUM_THREADS"]) == ("7", "2", "2")
    assert env["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert of_environment(env) == Reproducibility(**spec)


def test_nothing_asked_sets_nothing(manifest):
    env = env_of(named(pod_of(manifest)["containers"], "trainer"))
    assert not {"PYTHONHASHSEED", "OMP_NUM_THREADS", "STEPWARDEN_REPRODUCIBILITY"} & set(env)


def test_ranks_meet_over_the_service(manifest):
    env = env_of(named(pod_of(manifest)["containers"], "trainer"))
    assert pod_of(manifest)["subdomain"] == service(asked())["metadata"]["name"] == "tiny"
    assert env["PET_MASTER_ADDR"] == env["MASTER_ADDR"] == "tiny-0.tiny"
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "4")
    assert "job-completion-index" in env["PET_NODE_RANK"]["fieldRef"]["fieldPath"]
    assert service(asked())["spec"]["publishNotReadyAddresses"] is True


def test_the_agent_gets_the_policy_and_comes_first_on_the_path(manifest):
    env = env_of(named(pod_of(manifest)["containers"], "trainer"))
    assert env["PYTHONPATH"] == "/opt/stepwarden"
    assert from_json(env["STEPWARDEN_POLICY"]) == DEFAULT_RULES


@pytest.mark.parametrize("source", [{"value": "/mine"}, {"valueFrom": {"configMapKeyRef": {"name": "c"}}}])
def test_the_users_own_python_path_comes_after_the_agents(source):
    manifest = job(asked({"env": [{"name": "PYTHONPATH", **source}]}), SETTINGS, suspend=False)
    trainer = named(pod_of(manifest)["containers"], "trainer")
    assert env_of(trainer)["PYTHONPATH"] == "/opt/stepwarden:$(STEPWARDEN_USERS_PYTHONPATH)"
    names = [variable["name"] for variable in trainer["env"]]
    assert names.count("PYTHONPATH") == 1
    assert names.index("STEPWARDEN_USERS_PYTHONPATH") < names.index("PYTHONPATH")


def test_the_ranks_are_told_of_their_checkpoints_where_there_are_any(manifest):
    given = {"directory": "/checkpoints", "signal": "SIGUSR1"}
    told = env_of(
        named(pod_of(job(asked(checkpoint=given), SETTINGS, suspend=False))["containers"], "trainer")
    )
    assert told["STEPWARDEN_CHECKPOINT_DIR"] == "/checkpoints"
    assert told["STEPWARDEN_SAVE_FILE"] == "/run/stepwarden/save"
    assert told["STEPWARDEN_SAVE_SIGNAL"] == "SIGUSR1"
    without = env_of(named(pod_of(manifest)["containers"], "trainer"))
    assert not {name for name in without if "CHECKPOINT" in name or "SAVE" in name}


def test_the_job_bears_the_number_of_its_restart():
    made = job(asked(), SETTINGS, suspend=False, restarts=2)
    assert made["metadata"]["annotations"] == {"stepwarden.dev/restarts": "2"}


def test_the_sidecar_is_native_and_starts_first(manifest):
    agent, sidecar = pod_of(manifest)["initContainers"]
    assert "restartPolicy" not in agent
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    env = env_of(sidecar)
    assert env["STEPWARDEN_HUB"] == "http://tiny-{pod}.tiny:8475"
    assert env["STEPWARDEN_PODS"] == "2"
    assert env["STEPWARDEN_RANKS"] == "8"
    assert env["STEPWARDEN_TOKEN_FILE"] == "/etc/stepwarden/token"  # noqa: S105 - a path
    assert "STEPWARDEN_TOKEN" not in env


def test_the_token_is_mounted_in_the_sidecar_alone(manifest):
    pod = pod_of(manifest)
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "stepwarden-token"]
    assert volume["secret"] == {"secretName": "tiny-stepwarden"}
    mounting = [
        container["name"]
        for container in pod["initContainers"] + pod["containers"]
        if any(mount["name"] == "stepwarden-token" for mount in container.get("volumeMounts", ()))
    ]
    assert mounting == ["stepwarden-sidecar"]


def test_what_is_injected_is_unprivileged(manifest):
    for container in pod_of(manifest)["initContainers"]:
        security = container["securityContext"]
        assert security["runAsNonRoot"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"]


@pytest.mark.parametrize("policy", ["File", None])
def test_the_last_lines_of_a_crash_are_kept_unless_the_user_says_otherwise(policy):
    given = {"terminationMessagePolicy": policy} if policy else {}
    trainer = named(pod_of(job(asked(given), SETTINGS, suspend=False))["containers"], "trainer")
    assert trainer["terminationMessagePolicy"] == policy or "FallbackToLogsOnError"


def test_a_token_differs_by_job_and_by_key():
    tokens = {secret(asked(), key)["stringData"]["token"] for key in (b"a", b"b")}
    assert len(tokens) == 2


def test_the_users_template_is_not_changed():
    one = asked()
    before = repr(one.template)
    job(one, SETTINGS, suspend=True)
    assert repr(one.template) == before
