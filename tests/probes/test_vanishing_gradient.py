from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import ALL, Observation
from stepwarden.probes.vanishing_gradient import Part, Quiet, whole

KIND = "VanishingGradient"
ZERO = Part(name="encoder.1", steps=20, first=0.0, last=0.0, reached=True, bypassed=False)


def judged(quiet, step=40):
    return ALL[KIND].probe(Observation(rank=0, step=step, records=(quiet,)), ALL[KIND].DEFAULTS)


@pytest.mark.parametrize(
    ("part", "status"),
    [
        pytest.param(ZERO, "bad", id="zero"),
        pytest.param(replace(ZERO, steps=19), "ok", id="not-for-long"),
        pytest.param(replace(ZERO, reached=None, bypassed=None), "ok", id="not-looked-at"),
        pytest.param(replace(ZERO, reached=False), "ok", id="not-reached"),
        pytest.param(replace(ZERO, bypassed=True), "ok", id="an-idle-branch"),
        pytest.param(replace(ZERO, bypassed=True, steps=200), "bad", id="a-branch-that-is-dead"),
        pytest.param(replace(ZERO, first=1e-9, last=2e-9), "bad", id="tiny"),
        pytest.param(replace(ZERO, first=1e-9, last=2e-8), "ok", id="growing"),
        pytest.param(replace(ZERO, last=1e-12), "ok", id="from-zero-upwards"),
    ],
)
def test_what_vanishes_for_good(part, status):
    verdict = judged(Quiet(parts=(part,), living=("head",)))
    assert verdict.status == status
    if verdict.finding:
        assert (verdict.finding.severity, verdict.finding.module) == ("warning", "encoder.1")
        assert verdict.finding.first_step == max(41 - part.steps, 0)


def test_nothing_seen_is_unknown_and_nothing_vanishing_is_ok():
    assert ALL[KIND].probe(Observation(rank=0, step=1), ALL[KIND].DEFAULTS).status == "unknown"
    assert judged(Quiet()).status == "ok"


def test_of_several_the_smallest_is_named_and_of_equal_ones_the_last():
    parts = tuple(replace(ZERO, name=name) for name in ("a.0", "b.0", "c.0"))
    found = judged(Quiet(parts=parts, living=("a.1", "b.1", "c.1"))).finding
    assert (found.module, found.evidence["others"]) == ("c.0", ["a.0", "b.0"])
    tiny = replace(ZERO, name="d", first=1e-8, last=1e-8)
    assert judged(Quiet(parts=(tiny, replace(tiny, name="e", last=1e-9)))).finding.module == "e"


@pytest.mark.parametrize(
    ("bad", "living", "name"),
    [
        (["m.enc.0", "m.enc.1"], ["m.head"], "m.enc"),
        (["m.enc.0"], ["m.enc.1"], "m.enc.0"),
        (["m.enc.0"], ["m.head"], "m.enc.0"),
        (["m.enc.a.0", "m.enc.b.0"], [], "m.enc"),
    ],
)
def test_a_module_in_which_nothing_lives_is_named_as_a_whole(bad, living, name):
    assert whole(bad[0], bad, living) == name


PARTS = st.builds(
    Part,
    name=st.text("ab.", max_size=8),
    steps=st.integers(0, 300),
    first=st.floats(),
    last=st.floats(),
    reached=st.none() | st.booleans(),
    bypassed=st.none() | st.booleans(),
)


@given(parts=st.lists(PARTS, max_size=6), cut=st.integers(0, 300), step=st.integers(0, 300))
def test_any_record_is_judged_and_a_shorter_streak_turns_nothing_bad(parts, cut, step):
    verdict = judged(Quiet(parts=tuple(parts), living=("a",)), step)
    assert (verdict.finding is not None) == (verdict.status == "bad")
    shorter = tuple(replace(part, steps=max(part.steps - cut, 0)) for part in parts)
    if verdict.status == "ok":
        assert judged(Quiet(parts=shorter, living=("a",)), step).status == "ok"
