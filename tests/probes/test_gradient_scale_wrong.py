import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation, gradient_scale_wrong
from stepwarden.probes.gradient_scale_wrong import FAULTS, Scaling

NUMBER = st.none() | st.floats()


def judged(*records):
    return gradient_scale_wrong.probe(Observation(rank=1, step=7, records=records), {})


def test_nothing_is_known_without_a_scaler():
    assert (judged().status, judged().reason) == ("unknown", "NotScaled")


def test_what_is_unscaled_is_healthy():
    assert judged(Scaling(scale=1024.0)).status == "ok"


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        ("stepped", "critical"),
        ("added", "critical"),
        ("twice", "critical"),
        ("clipped", "warning"),
        ("tiny", "warning"),
        ("mixed", "warning"),
        ("never", "warning"),
    ],
)
def test_each_fault_is_said_with_its_scale(fault, severity):
    verdict = judged(Scaling(fault=fault, scale=65536.0, file="train.py", line=3, others=("tiny",)))
    assert (verdict.status, verdict.finding.severity) == ("bad", severity)
    assert "65536" in verdict.message
    assert (verdict.finding.file, verdict.finding.line, verdict.finding.step) == ("train.py", 3, 7)
    assert verdict.finding.evidence["others"] == ["tiny"]


def test_a_clip_that_clipped_nothing_says_so():
    verdict = judged(Scaling(fault="clipped", scale=65536.0, limit=1.0, norm=0.25))
    assert "scaled norm 0.25 was within it" in verdict.message


@given(st.sampled_from([None, *FAULTS]), NUMBER, NUMBER, NUMBER, st.integers())
def test_any_record_has_a_verdict(fault, scale, limit, norm, steps):
    verdict = judged(Scaling(fault=fault, scale=scale, limit=limit, norm=norm, steps=steps))
    assert verdict.status == ("ok" if fault is None else "bad")
