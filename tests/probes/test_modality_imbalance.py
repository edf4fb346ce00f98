import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import ALL, Observation
from stepwarden.probes.modality_imbalance import Proportion

KIND = "ModalityImbalance"
FAR = Proportion(
    starved="text", dominant="image", norms=(1e-6, 0.05), steps=5, first=5e4, last=5e4, shared=True
)


def judged(pair, step=4):
    return ALL[KIND].probe(Observation(rank=0, step=step, records=(pair,)), ALL[KIND].DEFAULTS)


@pytest.mark.parametrize(
    ("pair", "status", "reason"),
    [
        pytest.param(FAR, "bad", "OutOfProportion", id="starved"),
        pytest.param(replace(FAR, steps=4), "ok", "InProportion", id="not-for-long"),
        pytest.param(replace(FAR, last=900.0), "ok", "InProportion", id="near"),
        pytest.param(replace(FAR, shared=None), "unknown", "NotLooked", id="not-looked"),
        pytest.param(replace(FAR, shared=False), "ok", "LossesApart", id="actor-and-critic"),
        pytest.param(replace(FAR, last=1e4), "ok", "Closing", id="closing"),
        pytest.param(replace(FAR, last=math.nan), "ok", "InProportion", id="nan"),
    ],
)
def test_proportions(pair, status, reason):
    verdict = judged(pair)
    assert (verdict.status, verdict.reason) == (status, reason)
    if verdict.finding:
        assert (verdict.finding.severity, verdict.finding.module) == ("warning", "text")
        assert verdict.finding.first_step == 0
        assert "5e+04 times" in verdict.message


def test_nothing_seen_is_unknown():
    assert ALL[KIND].probe(Observation(rank=0, step=1), ALL[KIND].DEFAULTS).status == "unknown"


PAIRS = st.builds(
    Proportion,
    starved=st.text(),
    dominant=st.text(),
    norms=st.tuples(st.floats(), st.floats()),
    steps=st.integers(0, 50),
    first=st.floats(),
    last=st.floats(),
    shared=st.none() | st.booleans(),
)


@given(pair=PAIRS, cut=st.integers(0, 50))
def test_any_record_is_judged_and_a_shorter_streak_turns_nothing_bad(pair, cut):
    verdict = judged(pair)
    assert (verdict.finding is not None) == (verdict.status == "bad")
    shorter = judged(replace(pair, steps=max(pair.steps - cut, 0)))
    assert shorter.status != "bad" or verdict.status == "bad"
