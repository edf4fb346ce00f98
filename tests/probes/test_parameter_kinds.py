"""The kinds about parameters and the optimizer, each on its records."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import ALL, Observation
from stepwarden.probes.frozen_parameter_changed import Bases, Changed
from stepwarden.probes.gradient_accumulated_twice import Accumulation
from stepwarden.probes.parameter_changed_outside_step import Outside
from stepwarden.probes.parameter_not_updated import Still, Strangers
from stepwarden.probes.parameter_untied import Untied
from stepwarden.probes.update_wrong_size import Sizes
from stepwarden.wire import from_line, to_line

NAMES = ("head.weight", "head.bias")
STRANGERS = Strangers(count=2, why="stale", names=NAMES, stale=2)
STILL = Still(of=64, moved=0, looks=5, rate=1e-9)
LOST = Still(of=64, moved=60, looks=9, low=0.01, rate=1e-6, dtype="torch.bfloat16")
CHANGED = Changed(of=3, changed=2, size=0.01, names=NAMES)
OUTSIDE = Outside(
    of=10, step=12, changed=10, quiet=11, size=0.1, updates=4.0, occasion="evaluation", names=NAMES
)
UNTIED = Untied(names=("embed.weight", "head.weight"), equal=1.0)
SIZES = Sizes(of=4, medians=(0.001,), largest=0.01, highest=0.01, looks=1, rate=1e-3)


def judged(record, step=12):
    (kind,) = [kind for kind, probe in ALL.items() if probe.NEEDS and isinstance(record, probe.NEEDS)]
    return ALL[kind].probe(Observation(rank=0, step=step, records=(record,)), ALL[kind].DEFAULTS)


@pytest.mark.parametrize(
    ("record", "status", "reason"),
    [
        (Accumulation(of=8), "ok", "Cleared"),
        (Accumulation(of=0), "unknown", "NoGradients"),
        (Accumulation(of=8, carried=8, names=NAMES), "bad", "Carried"),
        (Accumulation(of=8, doubled=8), "bad", "Doubled"),
        (Strangers(), "ok", "AllOwned"),
        (replace(STRANGERS, why=""), "ok", "LeftOut"),
        (STRANGERS, "bad", "NotInOptimizer"),
        (replace(STRANGERS, why="elsewhere"), "bad", "NotInOptimizer"),
        (replace(STRANGERS, why="late"), "bad", "NotInOptimizer"),
        (replace(STRANGERS, why="unfrozen"), "bad", "NotInOptimizer"),
        (replace(STRANGERS, why="loose"), "bad", "NotInOptimizer"),
        (STILL, "bad", "Still"),
        (replace(STILL, looks=4), "unknown", "NoHistory"),
        (replace(STILL, of=0), "unknown", "NoHistory"),
        (replace(STILL, idle=9), "unknown", "ZeroLearningRate"),
        (replace(STILL, idle=10, looks=2), "bad", "ZeroLearningRate"),
        (replace(STILL, moved=1), "ok", "Moving"),
        (LOST, "bad", "LostToRounding"),
        (replace(LOST, low=0.2), "ok", "Moving"),
        (CHANGED, "bad", "Changed"),
        (replace(CHANGED, shared=True, partner="student.head.weight"), "bad", "Changed"),
        (replace(CHANGED, changed=0), "ok", "Unchanged"),
        (Bases(of=2, trained=2, names=NAMES), "bad", "BaseTrained"),
        (Bases(of=2, trained=1), "ok", "Frozen"),
        (Bases(of=0), "ok", "Frozen"),
        (OUTSIDE, "bad", "Changed"),
        (replace(OUTSIDE, occasion="save"), "bad", "Changed"),
        (replace(OUTSIDE, occasion="load"), "bad", "Changed"),
        (replace(OUTSIDE, occasion=""), "unknown", "MayComeAgain"),
        (replace(OUTSIDE, occasion="", waited=11), "bad", "Changed"),
        (replace(OUTSIDE, occasion="", changed=1), "bad", "Changed"),
        (replace(OUTSIDE, changed=0), "ok", "Untouched"),
        (replace(OUTSIDE, resumed=True), "ok", "Resumed"),
        (replace(OUTSIDE, quiet=4), "ok", "Regular"),
        (replace(OUTSIDE, updates=1.0), "ok", "Projection"),
        (replace(OUTSIDE, updates=math.nan), "ok", "Projection"),
        (replace(OUTSIDE, of=0), "unknown", "NotFollowed"),
        (UNTIED, "bad", "Copied"),
        (replace(UNTIED, memory=True, place=("load.py", 3)), "bad", "Copied"),
        (replace(UNTIED, by_hand=True), "ok", "ByHand"),
        (replace(UNTIED, equal=0.1), "ok", "NewBeginning"),
        (SIZES, "ok", "Sensible"),
        (replace(SIZES, of=0), "unknown", "NoMatrices"),
        (replace(SIZES, medians=(11.0,)), "bad", "TooLarge"),
        (replace(SIZES, medians=(2.0, 2.0)), "ok", "Sensible"),
        (replace(SIZES, medians=(2.0, 2.0, 2.0), rate=None), "bad", "TooLarge"),
        (replace(SIZES, medians=(2.0, 0.5, 2.0)), "ok", "Sensible"),
        (replace(SIZES, medians=(0.0,), highest=1e-8, looks=10), "bad", "TooSmall"),
        (replace(SIZES, medians=(0.0,), highest=1e-8, looks=10, rate=0.0), "ok", "Sensible"),
        (replace(SIZES, medians=(0.0,), highest=1e-8, looks=9), "ok", "Sensible"),
    ],
)
def test_verdicts(record, status, reason):
    verdict = judged(record)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert (verdict.finding is not None) == (status == "bad")
    if verdict.finding:
        assert verdict.finding.severity == "warning"
        assert verdict.finding.message == verdict.message


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (STRANGERS, "head.weight and 1 more get gradients but are in no optimizer"),
        (OUTSIDE, "an evaluation changed head.weight and 9 more, of 10 parameters, between two steps"),
        (UNTIED, "embed.weight and head.weight were one parameter and are two now"),
        (replace(CHANGED, shared=True, partner="student.weight"), "the same memory as student.weight"),
    ],
)
def test_messages_name_what_they_speak_of(record, said):
    finding = judged(record).finding
    assert said in finding.message
    assert finding.parameter in ("head.weight", "embed.weight")
    assert finding.module == finding.parameter.rpartition(".")[0]


def test_a_change_that_was_waited_for_says_when_it_came():
    finding = judged(replace(OUTSIDE, occasion="", waited=11), step=25).finding
    assert (finding.step, finding.first_step) == (25, 12)


numbers = st.integers(0, 100)
sizes = st.floats()
names = st.lists(st.sampled_from(NAMES)).map(tuple)
records = st.one_of(
    st.builds(Accumulation, of=numbers, carried=numbers, doubled=numbers, names=names),
    st.builds(
        Strangers, count=numbers, why=st.sampled_from(("", "stale", "late", "?")), names=names, stale=numbers
    ),
    st.builds(
        Still,
        of=numbers,
        moved=numbers,
        looks=numbers,
        low=st.none() | sizes,
        idle=numbers,
        rate=st.none() | sizes,
        names=names,
    ),
    st.builds(Changed, of=numbers, changed=numbers, size=sizes, shared=st.booleans(), names=names),
    st.builds(Bases, of=numbers, trained=numbers, names=names),
    st.builds(
        Outside,
        of=numbers,
        step=numbers,
        changed=numbers,
        quiet=numbers,
        size=sizes,
        updates=sizes,
        occasion=st.sampled_from(("", "load", "evaluation", "save", "?")),
        waited=numbers,
        names=names,
    ),
    st.builds(Untied, names=names, equal=sizes, by_hand=st.booleans(), memory=st.booleans()),
    st.builds(
        Sizes,
        of=numbers,
        medians=st.lists(sizes).map(tuple),
        largest=sizes,
        highest=sizes,
        looks=numbers,
        rate=st.none() | sizes,
    ),
)


@given(records)
def test_no_record_makes_a_probe_raise_and_each_finding_crosses_the_wire(record):
    verdict = judged(record)
    assert verdict.reason
    assert (verdict.finding is not None) == (verdict.status == "bad")
    if verdict.finding:
        again = from_line(to_line(verdict.finding))
        assert (again.kind, again.message) == (verdict.finding.kind, verdict.finding.message)


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=5),
    st.integers(0, 4),
    st.floats(1e-6, 100),
)
def test_fewer_looks_never_make_an_update_too_large(medians, cut, highest):
    whole = replace(SIZES, medians=tuple(medians), highest=highest)
    part = replace(whole, medians=tuple(medians[min(cut, len(medians) - 1) :]))
    if judged(whole).status == "ok":
        assert judged(part).status == "ok"
