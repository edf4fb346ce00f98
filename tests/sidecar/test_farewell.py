import json

from hypothesis import example, given
from hypothesis import strategies as st

from stepwarden.wire import Finding, from_dict
from stepwarden_sidecar.farewell import SPACE, leave, text

findings = st.builds(
    Finding,
    kind=st.sampled_from(["NonFiniteGradient", "RankFailed"]),
    severity=st.just("critical"),
    step=st.integers(0, 10**6),
    message=st.text(max_size=3000),
    evidence=st.dictionaries(st.text(max_size=8), st.floats() | st.text(max_size=3000), max_size=4),
)


WORST = Finding(
    kind="RankFailed",
    severity="critical",
    step=1,
    message="\U0001f600" * 900,
    evidence={"log": "\U0001f600" * 900},
)


@example([WORST])
@given(st.lists(findings, max_size=30))
def test_the_last_findings_fit_and_read_back(given_ones):
    said = text(given_ones)
    assert len(said.encode()) <= SPACE
    read = [from_dict(Finding, json.loads(line)) for line in said.splitlines()]
    kept = given_ones[len(given_ones) - len(read) :]
    assert [(f.kind, f.step) for f in read] == [(f.kind, f.step) for f in kept]
    if len(given_ones) == 1:
        assert read  # one always fits, or the only word about a fault would be lost


def test_it_is_left_where_the_kubelet_looks(tmp_path):
    path = tmp_path / "termination-log"
    finding = Finding(kind="RankFailed", severity="critical", step=3, message="dead")
    leave([finding], path)
    assert not path.exists()  # no container: nothing is made
    path.touch()
    leave([finding], path)
    assert from_dict(Finding, json.loads(path.read_text())) == finding
