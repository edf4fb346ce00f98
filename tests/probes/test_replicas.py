"""Comparing ranks: the probes that the hub asks, on tables and on whatever ranks may say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import replicas
from stepwarden.probes.replicas import Together
from stepwarden.replica import Replica
from stepwarden.wire import from_line, to_line

NAN, INF = math.nan, math.inf


def rank(number, count=3, **more):
    """One rank's healthy step: everything like its peers', but for its batch and its own gradient's sum."""
    own = {0: 1.0, 1: 3.0, 2: 2.0, 3: 2.0}[number]
    fields = {
        "group": "0-3",
        "size": 4,
        "names": "n",
        "tensors": 10,
        "digest": "g",
        "norm": 1.5,
        "sketch": -3.0,
        "parameters": "p",
        "weight": 20.0,
        "weights": 7.0,
        "samples": (0.5, -0.25),
        "scale": 1024.0,
        "rates": (0.1, 0.01),
        "inputs": f"batch {count} of {number}",
        "own": own,
        "used": 2.0,
    }
    said = {"rank": number, "run": "r", "step": count + 10, "optimizer": 0, "count": count}
    return Replica(**(said | fields | more))


def together(*changes, before=(), **more):
    """Four ranks of which some say something else; `before` are the changes of the step before."""
    later = [rank(number, **(dict(changes).get(number, {}))) for number in range(4)]
    earlier = [rank(number, count=2, **(dict(before).get(number, {}))) for number in range(4)]
    return Together(records=tuple(later), before=tuple(earlier), **more)


def judged(seen):
    return dict(replicas.judge(seen))


def alarms(seen):
    return {
        kind: (verdict.finding.severity, verdict.finding.ranks, verdict.finding.step)
        for kind, verdict in judged(seen).items()
        if verdict.finding
    }


def both(**fields):
    """The same change on all ranks."""
    return [(number, fields) for number in range(4)]


def test_healthy_replicas_are_ok_in_every_respect():
    assert {verdict.status for verdict in judged(together()).values()} == {"ok"}


GRADIENT, DIVERGED, SCALE, DATA = (
    "GradientNotSynchronized",
    "ReplicasDiverged",
    "GradientScaleWrong",
    "DataRepeated",
)


def critical(kind, *ranks, step=13):
    return {kind: ("critical", ranks, step)}


def warning(kind, *ranks, step=13):
    return {kind: ("warning", ranks, step)}


@pytest.mark.parametrize(
    ("changes", "before", "expected"),
    [
        pytest.param(
            [(2, {"digest": "x", "norm": 1.6})],
            [],
            critical(GRADIENT, 2),
            id="one-rank-stands-out",
        ),
        pytest.param(
            [(n, {"digest": str(n), "norm": 1.0 + n}) for n in range(4)],
            [],
            critical(GRADIENT, 0, 1, 2, 3),
            id="each-its-own",
        ),
        pytest.param(
            [(2, {"digest": "x", "sketch": -3.01})],
            [],
            critical(GRADIENT, 2),
            id="a-small-gradient-that-the-norm-hides",
        ),
        pytest.param(
            [(2, {"digest": "x", "norm": 1.5000001, "sketch": -3.000001})],
            [],
            {},
            id="rounded-in-another-way",
        ),
        pytest.param([(2, {"tensors": 9, "digest": "x"})], [], critical(GRADIENT, 2), id="one-less"),
        pytest.param(
            [(2, {"digest": "x", "norm": NAN, "sketch": NAN})],
            [],
            critical(GRADIENT, 2),
            id="nan-on-one-rank-behind-the-reduction",
        ),
        pytest.param(both(norm=NAN, sketch=NAN), [], {}, id="nan-everywhere"),
        pytest.param([(0, {"digest": ""})], [], {}, id="a-rank-without-gradients"),
        pytest.param(
            [(1, {"scale": 512.0, "digest": "x", "norm": 3.0})],
            [(1, {"scale": 512.0})],
            critical(SCALE, 1, step=12),
            id="scales-are-the-cause",
        ),
        pytest.param([(1, {"scale": 512.0})], [], {}, id="a-scale-that-is-heard-of-late"),
        pytest.param([(1, {"scale": None})], [(1, {"scale": None})], {}, id="no-scale"),
        pytest.param(
            [(3, {"parameters": "x", "weight": 21.0})],
            [],
            critical(DIVERGED, 3),
            id="parameters",
        ),
        pytest.param(
            [(3, {"parameters": "x", "weights": 7.1})],
            [],
            critical(DIVERGED, 3),
            id="one-parameter",
        ),
        pytest.param([(3, {"parameters": "x", "weights": 7.00001})], [], {}, id="parameters-rounded"),
        pytest.param([(3, {"samples": (0.6, -0.3)})], [], critical(DIVERGED, 3), id="two-values"),
        pytest.param([(3, {"samples": (0.6, -0.25)})], [], {}, id="one-value-may-be-rounding"),
        pytest.param([(0, {"rates": (0.2, 0.01)})], [], critical(DIVERGED, 0), id="another-learning-rate"),
        pytest.param(
            [(0, {"inputs": "a"}), (2, {"inputs": "a"})],
            [(0, {"inputs": "b"}), (2, {"inputs": "b"})],
            warning(DATA, 0, 2, step=12),
            id="two-ranks-share-their-data",
        ),
        pytest.param([(0, {"inputs": "a"}), (2, {"inputs": "a"})], [], {}, id="the-same-batch-once"),
        pytest.param(both(inputs="a"), both(inputs="a"), {}, id="one-fixed-batch"),
        pytest.param(both(inputs=""), both(inputs=""), {}, id="no-batch-to-compare"),
        pytest.param(both(used=8.0), both(used=8.0), warning(SCALE, 0, 1, 2, 3, step=12), id="summed"),
        pytest.param(
            both(used=0.5), both(used=0.5), warning(SCALE, 0, 1, 2, 3, step=12), id="averaged-twice"
        ),
        pytest.param(both(used=6.0), both(used=6.0), warning(SCALE, 0, 1, 2, 3, step=12), id="multiplied"),
        pytest.param(both(used=8.0), [], {}, id="multiplied-once"),
        pytest.param(both(used=0.7), both(used=0.3), {}, id="clipped"),
        pytest.param(both(used=5.0), both(used=3.0), {}, id="something-added-to-the-gradients"),
        pytest.param(both(own=None), both(own=None), {}, id="not-measured"),
    ],
)
def test_what_ranks_say_differently(changes, before, expected):
    assert alarms(together(*changes, before=before)) == expected


def test_a_few_single_values_are_no_proof_that_replicas_are_the_same():
    seen = together(*both(parameters="", weight=None, weights=None))
    assert judged(seen)[DIVERGED].reason == "NotDue"


def test_a_rank_that_does_not_know_its_replicas_is_unknown_and_not_ok():
    seen = together(
        *both(group="", why="by hand", digest="x"), (1, {"group": "", "digest": "y", "norm": 9.0})
    )
    assert {verdict.reason for verdict in judged(seen).values()} == {"NotDataParallel"}


def test_ranks_that_agreed_for_a_while_are_replicas_and_may_be_warned_of():
    seen = together(*both(group=""), (1, {"group": "", "digest": "y", "norm": 9.0}), agreed=True)
    assert alarms(seen) == warning(GRADIENT, 1)


def test_optimizers_with_other_parameters_are_not_compared():
    seen = together((1, {"names": "of another shard", "digest": "y", "norm": 9.0}))
    assert {verdict.reason for verdict in judged(seen).values()} == {"DifferentParameters"}


def test_the_missing_reduction_is_named_with_its_line():
    hint = {"digest": "y", "norm": 9.0, "hint": "called past its wrapper", "file": "train.py", "line": 7}
    verdict = judged(together((1, hint)))[GRADIENT]
    assert verdict.message == (
        "rank 1 of 4 replicas would use different gradients (norm 1.5 on rank 0, 9 on rank 1, 1.5 on rank 2, "
        "1.5 on rank 3): called past its wrapper"
    )
    assert (verdict.finding.file, verdict.finding.line, verdict.finding.rank) == ("train.py", 7, 1)


some_float = st.none() | st.floats()
ranks = st.builds(
    Replica,
    rank=st.integers(0, 5),
    run=st.just("r"),
    step=st.integers(0, 9),
    optimizer=st.just(0),
    count=st.integers(0, 3),
    group=st.sampled_from(["", "0-5"]),
    size=st.integers(0, 6),
    names=st.sampled_from(["n", "m"]),
    tensors=st.integers(0, 3),
    digest=st.sampled_from(["", "a", "b"]),
    norm=some_float,
    sketch=some_float,
    parameters=st.sampled_from(["", "a", "b"]),
    weight=some_float,
    weights=some_float,
    samples=st.lists(st.floats(), max_size=3).map(tuple),
    scale=some_float,
    rates=st.lists(st.floats(), max_size=2).map(tuple),
    inputs=st.sampled_from(["", "a", "b"]),
    own=some_float,
    used=some_float,
)
some_ranks = st.lists(ranks, max_size=6, unique_by=lambda record: record.rank).map(tuple)


@given(some_ranks, some_ranks, st.booleans())
def test_nothing_that_ranks_say_raises_and_every_finding_can_be_sent(records, before, agreed):
    for verdict in judged(Together(records=records, before=before, agreed=agreed)).values():
        assert verdict.reason
        if verdict.finding:
            assert verdict.status == "bad"
            assert repr(from_line(to_line(verdict.finding)))
            assert set(verdict.finding.ranks) <= {record.rank for record in records + before}


@given(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)))
def test_ranks_left_out_never_turn_healthy_replicas_into_bad_ones(left, earlier):
    seen = together()
    cut = replace(
        seen,
        records=tuple(record for record in seen.records if record.rank not in left),
        before=tuple(record for record in seen.before if record.rank not in earlier),
    )
    assert not alarms(cut)
