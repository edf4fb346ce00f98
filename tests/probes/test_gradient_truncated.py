"""GradientTruncated over recorded steps in plain values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation, cut, gradient_truncated
from stepwarden.probes.gradient_truncated import Truncation
from stepwarden.probes.trace import Op, Trace, Value


def value(number, *, grad=True, leaf=None, floating=True):
    return Value(id=number, floating=floating, requires_grad=grad, leaf=leaf)


def op(number, name, inputs, outputs, **more):
    return Op(
        index=number, name=name, inputs=inputs, outputs=outputs, file="train.py", line=10 + number, **more
    )


def chain(name, *, grad=False, floating=True, **more):
    """Weight, linear, `name`, loss."""
    values = (
        value(0, leaf="body.weight"),
        value(1),
        value(2, grad=grad, floating=floating),
        value(3, leaf="head.weight"),
        value(4),
    )
    ops = (op(0, "linear", (0,), (1,)), op(1, name, (1,), (2,), **more), op(2, "mul", (2, 3), (4,)))
    return Trace(values=values, ops=ops, losses=(4,))


def judged(trace, *suspects, **more):
    record = Truncation(trace=trace, suspects=suspects, trained=1, **more)
    return gradient_truncated.probe(Observation(rank=0, step=0, records=(record,)), {})


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("detach", {}, "detach"),
        ("data", {}, "data"),
        ("item", {}, "number"),
        ("relu", {"grad_enabled": False}, "no_grad"),
        ("relu", {"grad_enabled": False, "inference": True}, "inference"),
        ("argmax", {"floating": False}, "integer"),
        ("all_gather", {}, "collective"),
        ("all_gather_into_tensor", {"grad": True, "blocked": (1,)}, "collective"),
        ("checkpoint", {"custom": True}, "checkpoint"),
        ("Mine", {"custom": True}, "undeclared"),
        ("Mine", {"custom": True, "grad": True, "blocked": (1,)}, "none"),
        ("tensor", {}, "copy"),
        ("grad", {}, "gradient"),
        ("strange", {}, "operator"),
    ],
)
def test_each_way_to_cut_a_graph_has_its_reason(name, more, why):
    verdict = judged(chain(name, **more), "body.weight")
    assert (verdict.status, verdict.finding.severity, verdict.finding.op) == ("bad", "warning", name)
    assert (verdict.finding.parameter, verdict.finding.line) == ("body.weight", 11)
    assert verdict.finding.evidence["reason"] == why
    assert "body.weight" in verdict.message
    assert name in verdict.message or why == "inference" or why in {"gradient", "checkpoint"}


def test_what_a_checkpoint_runs_is_blamed_on_the_checkpoint():
    trace = chain("checkpoint", custom=True)
    inner = op(3, "linear", (3,), (2,), inside=1)
    trace = replace(trace, ops=(*trace.ops, inner))
    (found,) = cut.find(trace, {"head.weight"})
    assert (found.op.index, found.why) == (1, "checkpoint")


def test_the_place_is_where_gradients_were_switched_off():
    trace = chain("relu", grad_enabled=False, switched=("train.py", 3), entered=("train.py", 3))
    assert judged(trace, "body.weight").finding.line == 3


def test_what_no_loss_uses_is_unused():
    trace = chain("detach")
    assert judged(replace(trace, losses=(1,)), "head.weight").reason == "Unused"
    assert judged(replace(trace, losses=()), "body.weight").reason == "Unused"


def test_what_has_its_gradients_is_ok_and_what_was_not_recorded_unknown():
    assert judged(chain("detach")).reason == "AllReached"
    assert judged(Trace(), "body.weight", why="compiled").status == "unknown"
    assert gradient_truncated.probe(Observation(rank=0, step=0), {}).status == "unknown"


def test_a_choice_in_the_source_and_a_teacher_are_no_alarm():
    assert (
        judged(chain("detach"), "body.weight", optional=frozenset({("train.py", 11)})).finding.severity
        == "info"
    )
    trace = chain("relu", grad_enabled=False, training=False)
    assert judged(trace, "body.weight").finding.severity == "warning"  # nothing trains: it was forgotten
    others = tuple(replace(one, training=True) if one.index == 0 else one for one in trace.ops)
    assert judged(replace(trace, ops=others), "body.weight").finding.severity == "info"


NUMBERS = st.integers(0, 7)
IDS = st.lists(NUMBERS, max_size=3).map(tuple)
NAMES = st.sampled_from(["detach", "item", "mul", "all_gather", "argmax", "checkpoint", "grad", "Mine"])
VALUES = st.builds(
    Value,
    id=st.just(0),
    floating=st.booleans(),
    requires_grad=st.booleans(),
    leaf=st.sampled_from([None, "a", "b"]),
)
OPS = st.builds(
    Op,
    index=st.just(0),
    name=NAMES,
    inputs=IDS,
    outputs=IDS,
    grad_enabled=st.booleans(),
    inference=st.booleans(),
    custom=st.booleans(),
    inside=st.just(None),
    blocked=IDS,
    training=st.sampled_from([None, True, False]),
)


@st.composite
def traces(draw):
    values = tuple(
        replace(one, id=index) for index, one in enumerate(draw(st.lists(VALUES, min_size=8, max_size=8)))
    )
    ops = []
    for index, one in enumerate(draw(st.lists(OPS, max_size=8))):
        inside = draw(st.sampled_from([None, *range(index)]))
        ops.append(replace(one, index=index, inside=inside))
    return Trace(values=values, ops=tuple(ops), losses=draw(IDS))


@given(traces())
def test_no_trace_makes_it_raise_and_only_suspects_are_named(trace):
    verdict = judged(trace, "a")
    assert verdict.status in {"ok", "bad"}
    if verdict.finding is not None:
        assert set(verdict.finding.evidence["parameters"]) == {"a"}
    assert judged(trace).status == "ok"


@given(traces(), st.integers(0, 8))
def test_a_recording_cut_short_accuses_nobody_who_was_well(trace, length):
    whole = judged(replace(trace, losses=()), "a", "b")
    short = judged(replace(trace, ops=trace.ops[:length], losses=()), "a", "b")
    assert whole.status == "ok"
    assert short.status == "ok"
