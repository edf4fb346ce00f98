"""What can be said of the chart without helm; tests/cluster installs it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from stepwarden import policy, reproducibility
from stepwarden_operator import names
from stepwarden_operator.metrics import STATES
from stepwarden_operator.training_job import read_training_job

CHART = Path(__file__).parents[2] / "charts" / "stepwarden"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))


@pytest.fixture(scope="module")
def crd():
    return yaml.safe_load((CHART / "crds" / "trainingjobs.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def schema(crd):
    [version] = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def test_the_crd_is_the_kind_that_the_operator_watches(crd):
    spec = crd["spec"]
    assert (spec["group"], spec["names"]["plural"]) == (names.GROUP, names.PLURAL)
    assert spec["names"]["kind"] == names.KIND
    assert [version["name"] for version in spec["versions"]] == [names.VERSION]


def test_the_crd_takes_the_kinds_and_actions_that_the_policy_knows(schema):
    rule = schema["spec"]["properties"]["onFinding"]["items"]["properties"]
    assert set(rule["kinds"]["items"]["enum"]) == {"*", *policy.KINDS}
    assert rule["action"]["enum"] == list(policy.ACTIONS)
    assert set(rule["then"]["enum"]) < set(rule["action"]["enum"])
    assert tuple(rule["severity"]["enum"]) == policy.SEVERITIES


def test_the_crd_asks_for_repeatable_runs_as_the_ranks_understand_it(schema):
    fields = schema["spec"]["properties"]["reproducibility"]["properties"]
    assert tuple(fields) == reproducibility.FIELDS
    assert f"<= {reproducibility.MOST_SEED}" in fields["seed"]["x-kubernetes-validations"][0]["rule"]
    assert f"<= {reproducibility.MOST_THREADS}" in fields["threads"]["x-kubernetes-validations"][0]["rule"]


def test_the_crd_takes_the_states_that_are_counted(schema):
    assert tuple(schema["status"]["properties"]["phase"]["enum"]) == STATES


def test_every_rule_of_the_crd_says_what_to_do(crd):
    def rules(node):
        if isinstance(node, dict):
            yield from node.get("x-kubernetes-validations", ())
            for value in node.values():
                yield from rules(value)

    found = list(rules(crd["spec"]["versions"][0]["schema"]))
    assert len(found) >= 10
    assert all(len(rule["message"]) > 20 for rule in found)


def test_the_columns(crd):
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["State", "Step", "Ranks", "Findings", "Age"]
    assert [column["name"] for column in columns if column.get("priority")] == [
        "Loss",
        "Restarts",
        "Last finding",
    ]


def test_every_value_is_in_the_schema_and_used():
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    used = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())
    for name, value in values.items():
        whole = re.search(rf"\.Values\.{name}\b(?!\.)", used)
        for inner in [] if whole else value:
            assert f".Values.{name}.{inner}" in used


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_names_what_it_makes_after_the_release(path):
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"^metadata:\n  name: (.*)$", text, re.MULTILINE):
        assert "stepwarden.fullname" in name or name == "{{ $name }}"


def test_the_operator_may_make_secrets_and_never_read_one():
    text = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    role = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", text).split("---")[0].replace("labels: x", ""))
    verbs = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert verbs["secrets"] == {"create", "patch"}
    assert verbs["trainingjobs"] == {"list", "watch"}
    assert not any(set(granted) & {"deletecollection", "*"} for granted in verbs.values())
    assert {resource for resource, granted in verbs.items() if "delete" in granted} == {"jobs"}
    assert "*" not in verbs


def test_every_field_is_in_the_docs(schema):
    text = (CHART.parents[1] / "docs" / "trainingjob.md").read_text(encoding="utf-8")
    fields = {*schema["spec"]["properties"], *schema["status"]["properties"]}
    fields |= set(schema["spec"]["properties"]["onFinding"]["items"]["properties"])
    assert {field for field in fields if f"`{field}`" not in text} == set()


def test_the_example_of_the_docs_is_one_that_the_operator_takes():
    text = (CHART.parents[1] / "docs" / "trainingjob.md").read_text(encoding="utf-8")
    body = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    body["metadata"] |= {"namespace": "ns", "uid": "u"}
    assert read_training_job(body).num_nodes == 2
