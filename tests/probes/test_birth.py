"""Who is to blame: from what a replay recorded to one operator, without torch."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import birth
from stepwarden.probes.birth import Birth, Eaten, Node, Step
from stepwarden.probes.trace import Op, Trace, Value

NAN, INF = math.nan, math.inf


def made(op, largest):
    return Eaten(largest=largest, op=op)


X = Eaten(largest=1.0, source="argument", name="0")
MASK = Eaten(largest=-INF, source="buffer", name="mask")
ATTENTION = [
    Step(name="matmul", largest=3.0, inputs=(X, X)),
    Step(name="masked_fill", largest=-INF, inputs=(made(0, 3.0),)),
    Step(name="softmax", largest=NAN, inputs=(made(1, -INF),)),
    Step(name="linear", largest=NAN, inputs=(made(2, NAN),)),
]
OVERFLOW = [
    Step(name="matmul", largest=INF, inputs=(X, X)),
    Step(name="add", largest=INF, inputs=(made(0, INF), MASK)),
    Step(name="softmax", largest=NAN, inputs=(made(1, INF),)),
]
BY_A_BUFFER = [
    Step(name="add", largest=-INF, inputs=(X, MASK)),
    Step(name="softmax", largest=NAN, inputs=(made(0, -INF),)),
]
LOGARITHM = [
    Step(name="relu", largest=1.0, inputs=(X,)),
    Step(name="log", largest=-INF, inputs=(made(0, 1.0),)),
    Step(name="mul", largest=NAN, inputs=(made(1, -INF), X)),
]


@pytest.mark.parametrize(
    ("steps", "start", "expected"),
    [
        pytest.param(ATTENTION, made(3, NAN), 2, id="a row that is masked as a whole"),
        pytest.param(BY_A_BUFFER, made(1, NAN), 1, id="the same by an added mask"),
        pytest.param(OVERFLOW, made(2, NAN), 0, id="an overflow, beside a mask"),
        pytest.param(LOGARITHM, made(2, NAN), 1, id="a logarithm of zero"),
    ],
)
def test_a_value_is_followed_to_its_birth(steps, start, expected):
    found = birth.of_forward(steps, start)
    assert (found.source, found.op, found.backward) == ("op", expected, False)


@pytest.mark.parametrize(
    ("steps", "start"),
    [
        pytest.param(ATTENTION, made(0, 3.0), id="finite"),
        pytest.param(ATTENTION, made(1, -INF), id="a mask"),
        pytest.param(ATTENTION, MASK, id="a mask in a buffer"),
        pytest.param([Step(name="relu", largest=NAN, inputs=(made(0, NAN),))], made(0, NAN), id="a circle"),
    ],
)
def test_no_value_is_accused_without_a_reason(steps, start):
    assert birth.of_forward(steps, start) is None


@pytest.mark.parametrize("source", ["argument", "parameter", "buffer", "constant"])
def test_what_was_bad_from_the_beginning_is_named(source):
    bad = Eaten(largest=NAN, source=source, name="0")
    steps = [Step(name="relu", largest=1.0, inputs=(X,)), Step(name="linear", largest=NAN, inputs=(X, bad))]
    found = birth.of_forward(steps, made(1, NAN))
    assert found == Birth(source=source, op=1, name="0", largest_in=found.largest_in)
    assert math.isnan(found.largest_in)


def node(name, received, *sent, op=None):
    return Node(name=name, received=received, sent=sent, op=op)


BACKWARD = [
    node("WhereBackward0", (1.0,), (0.0, 1), (0.5, 4), op=1),
    node("SqrtBackward0", (0.0,), (NAN, 2), op=0),
    node("PowBackward0", (NAN,), (NAN, 3)),
    node("leaf", ()),
    node("MaskedBackward0", (0.5,), (NAN, 5)),
    node("WhereBackward0", (NAN,), (0.0, 6)),
    node("leaf", ()),
]


def test_the_first_node_with_finite_gradients_is_to_blame():
    assert birth.of_backward(BACKWARD, [3]) == 1


def test_what_was_masked_away_is_not_followed():
    assert birth.of_backward(BACKWARD, [6]) is None
    assert birth.of_backward(BACKWARD, []) is None


def test_a_finite_forward_pass_leaves_the_backward_operator():
    steps = [
        Step(name="sqrt", largest=2.0, inputs=(X,)),
        Step(name="where", largest=2.0, inputs=(made(0, 2.0),)),
    ]
    found = birth.of_step(steps, BACKWARD, [3], [made(1, 2.0)])
    assert (found.op, found.backward, found.node) == (0, True, "SqrtBackward0")
    assert found.largest_in == 0.0
    assert math.isnan(found.largest_out)


def test_a_backward_operator_that_ran_on_bad_values_is_no_culprit():
    nodes = [node("MulBackward0", (1.0,), (NAN, 1), op=2), node("leaf", ())]
    found = birth.of_step(LOGARITHM, nodes, [1], [made(0, 1.0)])
    assert (found.op, found.backward) == (1, False)


def test_without_a_backward_pass_the_outputs_are_followed():
    assert birth.of_step(OVERFLOW, [], [], [made(2, NAN)]).op == 0
    assert birth.of_step(ATTENTION, [], [], [made(0, 3.0)]) is None


def test_a_recording_becomes_steps():
    trace = Trace(
        values=(
            Value(id=0, floating=True, requires_grad=False, nan=False, inf=False, largest=2.0),
            Value(
                id=1, floating=True, requires_grad=True, leaf="proj.weight", nan=True, inf=True, largest=1.0
            ),
            Value(id=2, floating=True, requires_grad=False, leaf="mask", inf=True, neg_inf_only=True),
            Value(id=3, floating=True, requires_grad=True, nan=False, inf=True, largest=5.0),
        ),
        ops=(Op(index=0, name="linear", inputs=(0, 1, 2), outputs=(3,), module="proj", file="a.py", line=3),),
    )
    (step,) = birth.steps(trace, {0: "x"}, {"proj.weight"})
    assert [(one.source, one.name) for one in step.inputs] == [
        ("argument", "x"),
        ("parameter", "proj.weight"),
        ("buffer", "mask"),
    ]
    assert step.inputs[0].largest == 2.0
    assert math.isnan(step.inputs[1].largest)
    assert (step.inputs[2].largest, step.largest, step.module, step.line) == (-INF, INF, "proj", 3)


sizes = st.floats() | st.sampled_from([NAN, INF, -INF, 0.0])
indices = st.none() | st.integers(-3, 12)
eaten = st.builds(
    Eaten, largest=sizes, op=indices, source=st.sampled_from(["argument", "parameter", "buffer", "constant"])
)
steps = st.lists(
    st.builds(
        Step,
        name=st.sampled_from(["log", "where", "softmax"]),
        largest=sizes,
        inputs=st.lists(eaten, max_size=3).map(tuple),
    ),
    max_size=10,
)
nodes = st.lists(
    st.builds(
        Node,
        name=st.just("LogBackward0"),
        received=st.lists(sizes, max_size=2).map(tuple),
        sent=st.lists(st.tuples(sizes, indices), max_size=3).map(tuple),
        op=indices,
    ),
    max_size=10,
)


@given(steps, nodes, st.lists(st.integers(-3, 12), max_size=3), st.lists(eaten, max_size=3))
def test_no_record_makes_it_raise_and_nobody_is_to_blame_where_all_is_finite(steps, nodes, bad, outputs):
    found = birth.of_step(steps, nodes, bad, outputs)
    everything = [
        *(one.largest for step in steps for one in step.inputs),
        *(step.largest for step in steps),
        *(one.largest for one in outputs),
        *(gradient for node in nodes for gradient, _ in node.sent),
    ]
    if birth.finite(everything):
        assert found is None
