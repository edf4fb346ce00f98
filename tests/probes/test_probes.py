import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden import policy
from stepwarden.probes import ALL, NonFinite, Observation, ranks, replicas, settings
from stepwarden.wire import Finding, Verdict, from_line, to_line

NAN, INF = math.nan, math.inf
BAD = NonFinite(name="blocks.0.mlp.weight", tensors=3, of=20, nan=12, inf=1, size=288)
UNNAMED = NonFinite(name=None, tensors=1, of=20)


def judged(kind, **seen):
    return ALL[kind].probe(Observation(**{"rank": 1, "step": 7} | seen), ALL[kind].DEFAULTS)


def severity(verdict):
    return verdict.finding.severity if verdict.finding else None


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        pytest.param({"gradient_norm": 0.5}, "ok", "Finite", id="finite"),
        pytest.param({}, "unknown", "NoGradients", id="nothing-has-a-gradient"),
        pytest.param({"gradient_norm": INF}, "ok", "Finite", id="only-the-norm-overflowed"),
        pytest.param({"gradient_norm": NAN, "gradients": BAD}, "bad", "NotFinite", id="bad"),
        pytest.param(
            {"gradient_norm": NAN, "gradients": BAD, "scaled": True}, "ok", "ScalerSkips", id="scaler"
        ),
    ],
)
def test_gradient(seen, status, reason):
    verdict = judged("NonFiniteGradient", **seen)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert severity(verdict) == ("critical" if status == "bad" else None)


@pytest.mark.parametrize(
    ("seen", "status", "severe"),
    [
        pytest.param({"loss": 1.0}, "ok", None, id="finite"),
        pytest.param({}, "unknown", None, id="no-scalar"),
        pytest.param({"loss": NAN, "gradient_norm": 0.0}, "bad", "info", id="no-label-in-the-batch"),
        pytest.param({"loss": NAN, "gradients": BAD}, "bad", "critical", id="poisons"),
        pytest.param({"loss": INF, "gradients": BAD, "scaled": True}, "bad", "info", id="scaler-skips"),
    ],
)
def test_loss(seen, status, severe):
    verdict = judged("NonFiniteLoss", **seen)
    assert (verdict.status, severity(verdict)) == (status, severe)


@pytest.mark.parametrize(
    ("seen", "status", "first_step"),
    [
        pytest.param({}, "unknown", None, id="not-due"),
        pytest.param({"checked": True}, "ok", None, id="finite"),
        pytest.param({"checked": True, "parameters": BAD}, "bad", None, id="bad"),
        pytest.param({"checked": True, "parameters": BAD, "since": 6}, "bad", 6, id="the-cause-is-known"),
    ],
)
def test_parameter(seen, status, first_step):
    verdict = judged("NonFiniteParameter", **seen)
    assert verdict.status == status
    assert (verdict.finding.first_step if verdict.finding else None) == first_step


def test_a_message_is_one_sentence_with_the_numbers_in_it():
    verdict = judged("NonFiniteGradient", gradients=BAD, gradient_norm=NAN, local=True, norms=(0.5, 0.53))
    assert verdict.message == (
        "the gradient of blocks.0.mlp.weight holds 12 NaN and 1 Inf in 288 values "
        "(so do 2 more of 20 tensors), born on rank 1; the gradient norm was 0.53 in the step before"
    )
    assert verdict.finding.module == "blocks.0.mlp"
    assert verdict.finding.ranks == (1,)


def test_a_replica_whose_own_gradient_was_finite_says_so():
    message = judged("NonFiniteGradient", gradients=UNNAMED, gradient_norm=NAN, local=False).message
    assert message == (
        "the gradient of a parameter that belongs to no module holds NaN or Inf, "
        "on rank 1, whose own gradient was finite before the reduction"
    )


numbers = st.none() | st.floats()
whole = st.integers(-(2**63), 2**63 - 1)  # as they cross the wire
non_finite = st.builds(
    NonFinite,
    name=st.none() | st.text(),
    tensors=st.integers(),
    of=st.integers(),
    nan=st.none() | st.integers(),
    inf=st.none() | st.integers(),
    size=st.none() | st.integers(),
)
observations = st.builds(
    Observation,
    rank=whole,
    step=whole,
    loss=numbers,
    gradient_norm=numbers,
    gradients=st.none() | non_finite,
    scaled=st.booleans(),
    checked=st.booleans(),
    parameters=st.none() | non_finite,
    local=st.none() | st.booleans(),
    late=st.booleans(),
    norms=st.lists(st.floats(), max_size=5).map(tuple),
    since=st.none() | whole,
    file=st.none() | st.text(),
    line=st.none() | whole,
)


@given(observations)
def test_no_observation_makes_a_probe_raise_and_each_finding_crosses_the_wire(seen):
    for kind, probe in ALL.items():
        verdict = probe.probe(seen, probe.DEFAULTS)
        assert isinstance(verdict, Verdict)
        assert verdict.reason
        assert (verdict.finding is not None) == (verdict.status == "bad")
        if verdict.finding is not None:
            again = from_line(to_line(verdict.finding))
            assert isinstance(again, Finding)
            assert (again.kind, again.step, again.message) == (kind, seen.step, verdict.message)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param('{"NoSuch": {}}', "'NoSuch' is not a probe: know ", id="probe"),
        pytest.param('{"NonFiniteLoss": {"limit": 3}}', "no parameter 'limit': know enabled", id="parameter"),
        pytest.param('{"NonFiniteParameter": {"every": 0}}', "is 0: give a number above 0", id="value"),
        pytest.param('{"NonFiniteLoss": {"enabled": 0}}', "is 0: give true or false", id="switch"),
        pytest.param("[1]", "not a JSON object", id="list"),
        pytest.param("{", "not a JSON object", id="cut"),
        pytest.param('{"NonFiniteLoss": 3}', "not a probe", id="number"),
    ],
)
def test_what_cannot_be_meant_is_complained_of_and_changes_nothing(text, complaint):
    read = settings.read(text)
    assert complaint in read.complaints[0]
    assert read.probes == settings.DEFAULTS


def test_probes_are_switched_and_tuned():
    read = settings.read('{"NonFiniteLoss": {"enabled": false}, "NonFiniteParameter": {"every": 7}}')
    assert read.complaints == ()
    assert "NonFiniteLoss" not in read.probes
    assert read.probes["NonFiniteGradient"] == {}
    assert read.probes["NonFiniteParameter"] == {"every": 7}


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_nothing_said_is_the_default(text):
    assert settings.read(text) == settings.Settings(settings.DEFAULTS)


def test_every_probe_has_its_parameters_listed():
    assert set(settings.DEFAULTS) == set(ALL) | set(replicas.KINDS) | set(ranks.DEFAULTS)
    assert set(settings.DEFAULTS) == set(policy.KINDS) - {"RankFailed"}


@given(st.text())
def test_any_text_is_read(text):
    settings.read(text)
