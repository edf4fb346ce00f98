import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation, scaler_starved
from stepwarden.probes.scaler_starved import Skips


def judged(record, **settings):
    records = () if record is None else (record,)
    return scaler_starved.probe(
        Observation(rank=0, step=3, records=records), scaler_starved.DEFAULTS | settings
    )


def skips(**more):
    healthy = {"run": 0, "total": 0, "of": 100, "scale": 1024.0, "first": 65536.0, "falling": True}
    return Skips(**healthy | more)


def test_nothing_is_known_without_a_scaler():
    assert judged(None).status == "unknown"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        pytest.param(skips(), None, id="steps"),
        pytest.param(skips(run=19, total=19), None, id="nineteen"),
        pytest.param(skips(run=20, total=20), "Skipped", id="twenty"),
        pytest.param(skips(run=24, total=24, of=24, scale=512.0, first=2.0**33), None, id="warm-up"),
        pytest.param(skips(run=24, total=24, of=24, scale=256.0, first=2.0**32), "Skipped", id="warm-up-low"),
        pytest.param(skips(run=20, total=20, of=20, falling=False), "Skipped", id="it-doesn't-fall"),
        pytest.param(skips(run=60, total=60, of=60, scale=1e9, first=1e30), "Skipped", id="without-end"),
        pytest.param(skips(run=1, total=30, scale=0.5), "ScaleLow", id="below-one"),
        pytest.param(skips(run=1, total=30, scale=0.5, first=0.5), None, id="it-began-there"),
    ],
)
def test_verdicts(record, reason):
    verdict = judged(record)
    assert (verdict.status, verdict.reason) == (("bad", reason) if reason else ("ok", "Steps"))
    if verdict.finding:
        assert verdict.finding.severity == "warning"


def test_its_numbers_are_set():
    assert judged(skips(run=5, total=5), skips=5).status == "bad"
    assert judged(skips(run=1, total=30, scale=100.0), scale=128).status == "bad"


def test_the_gradient_to_blame_is_named():
    record = skips(run=20, total=20, parameter="head.weight", nan=3, file="train.py", line=9)
    finding = judged(record).finding
    assert (finding.module, finding.parameter, finding.line) == ("head", "head.weight", 9)
    assert "head.weight holds 3 NaN; a smaller scale does not help" in finding.message


COUNT = st.integers(min_value=0, max_value=10**6)
ANY = st.builds(
    Skips,
    run=COUNT,
    total=COUNT,
    of=COUNT,
    scale=st.floats(),
    first=st.floats(),
    falling=st.booleans(),
    parameter=st.none() | st.text(),
    nan=st.none() | COUNT,
    inf=st.none() | COUNT,
)


@given(ANY)
def test_any_record_has_a_verdict(record):
    assert judged(record).status in {"ok", "bad"}


@given(st.integers(min_value=0, max_value=19), st.integers(min_value=0, max_value=19))
def test_a_shorter_run_never_turns_ok_into_bad(run, less):
    assert judged(skips(run=max(0, run - less), total=run)).status == "ok"
