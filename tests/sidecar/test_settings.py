from pathlib import Path

import pytest

from stepwarden_sidecar.settings import SettingsError, read

LEAST = {"STEPWARDEN_DIR": "/run/stepwarden", "STEPWARDEN_TOKEN": "secret"}
HUB = "http://job-0.job:8475"


def test_the_least_that_it_needs():
    settings = read(LEAST)
    assert (settings.hub, settings.pod, settings.ranks, settings.port) == (None, 0, None, 8475)
    assert (settings.bind, settings.report, settings.labels) == ("0.0.0.0", None, ())  # noqa: S104 - the default


def test_all_of_it():
    more = {
        "STEPWARDEN_HUB": HUB + "/",
        "STEPWARDEN_POD": "3",
        "STEPWARDEN_RANKS": "32",
        "STEPWARDEN_PORT": "0",
    }
    named = {"STEPWARDEN_JOB": "llama", "STEPWARDEN_NAMESPACE": "ml", "STEPWARDEN_REPORT": "out"}
    settings = read(LEAST | more | named | {"STEPWARDEN_BIND": "127.0.0.1"})
    assert (settings.hub, settings.pod, settings.ranks, settings.port) == (HUB, 3, 32, 0)
    assert settings.labels == (("training_job", "llama"), ("namespace", "ml"))
    assert (settings.bind, settings.report) == ("127.0.0.1", Path("out"))


def test_pod_0_is_the_hub_although_it_is_told_the_hub_s_url():
    assert read(LEAST | {"STEPWARDEN_HUB": HUB, "STEPWARDEN_POD": "0"}).hub is None


def test_the_token_is_not_shown():
    assert "secret" not in repr(read(LEAST))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"STEPWARDEN_DIR": ""}, "STEPWARDEN_DIR is not set"),
        ({"STEPWARDEN_TOKEN": ""}, "STEPWARDEN_TOKEN is not set"),
        ({"STEPWARDEN_DIR": "/" + "long/" * 25}, "too long for a unix socket"),
        ({"STEPWARDEN_PORT": "http"}, "STEPWARDEN_PORT is 'http': give a whole number from 0 to 65535"),
        ({"STEPWARDEN_PORT": "70000"}, "STEPWARDEN_PORT is '70000'"),
        ({"STEPWARDEN_PORT": "-1"}, "STEPWARDEN_PORT is '-1'"),
        ({"STEPWARDEN_RANKS": "0"}, "STEPWARDEN_RANKS is '0'"),
        ({"STEPWARDEN_POD": "first"}, "STEPWARDEN_POD is 'first'"),
        ({"STEPWARDEN_HUB": HUB}, "STEPWARDEN_POD is not set"),
        ({"STEPWARDEN_HUB": "job-0.job", "STEPWARDEN_POD": "1"}, "STEPWARDEN_HUB is 'job-0.job': give a URL"),
    ],
)
def test_an_environment_that_no_sidecar_can_start_from(wrong, sentence):
    with pytest.raises(SettingsError, match=sentence):
        read(LEAST | wrong)


def test_the_token_s_file_comes_before_the_variable(tmp_path):
    file = tmp_path / "token"
    file.write_text("mounted\n")
    assert read(LEAST | {"STEPWARDEN_TOKEN_FILE": str(file)}).token == "mounted"  # noqa: S105 - a test's
    file.write_text("\n")
    with pytest.raises(SettingsError, match="STEPWARDEN_TOKEN_FILE is empty"):
        read(LEAST | {"STEPWARDEN_TOKEN_FILE": str(file)})
    with pytest.raises(SettingsError, match="STEPWARDEN_TOKEN_FILE can't be read"):
        read(LEAST | {"STEPWARDEN_TOKEN_FILE": str(tmp_path / "nowhere")})


def test_any_pod_may_be_the_hub():
    template = {"STEPWARDEN_HUB": "http://job-{pod}.job:8475", "STEPWARDEN_PODS": "3"}
    settings = read(LEAST | template | {"STEPWARDEN_POD": "0"})
    assert (settings.hub, settings.candidates[2]) == (None, "http://job-2.job:8475")
    assert read(LEAST | template | {"STEPWARDEN_POD": "2"}).hub is None
    alone = read(LEAST | template | {"STEPWARDEN_PODS": "1", "STEPWARDEN_POD": "0"})
    assert (alone.hub, alone.candidates) == (None, ())
    for pod in ({}, {"STEPWARDEN_POD": "3"}):
        with pytest.raises(SettingsError, match="give this pod's index, from 0 to 2"):
            read(LEAST | template | pod)
