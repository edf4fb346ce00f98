import dataclasses

import pytest

from stepwarden.cli import rules, screen
from stepwarden.wire import Finding, RankReport

FOUND = Finding(
    kind="NonFiniteGradient",
    severity="critical",
    step=42,
    rank=1,
    ranks=(0, 1),
    parameter="widen.weight",
    module="widen",
    file="train.py",
    line=106,
    message="the gradient of widen.weight holds 4096 NaN in 4096 values",
)


def test_a_finding_says_what_where_who_and_what_next():
    lines = screen.block(FOUND, rules.of_mode("hold", 90.0), interactive=True)
    assert lines == [
        "finding: NonFiniteGradient (critical) at step 42, began on rank 1, seen on ranks 0 and 1",
        "  parameter widen.weight, module widen, train.py:106",
        "  the gradient of widen.weight holds 4096 NaN in 4096 values",
        (
            "  every rank is held before that update: the parameters are those of the step before; "
            "choose, or after 90s the run is stopped"
        ),
    ]


@pytest.mark.parametrize("mode", ["observe", "skip", "hold", "stop"])
def test_a_warning_holds_nothing(mode):
    mild = dataclasses.replace(FOUND, severity="warning")
    last = screen.block(mild, rules.of_mode(mode, None), interactive=False)[-1]
    assert "the training goes on: --on-anomaly is about critical findings" in last


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("observe", "it is only observed"),
        ("skip", "that update was left out on every rank"),
        ("hold", "after 10m the run is stopped (there is no terminal to ask)"),
        ("stop", "the run is stopped before that update"),
    ],
)
def test_what_comes_next(mode, said):
    assert said in screen.block(FOUND, rules.of_mode(mode, None), interactive=False)[-1]


@pytest.mark.parametrize(
    ("mode", "said"),
    [("observe", "it may go on"), ("skip", "it may go on"), ("hold", "it may go on"), ("stop", "is stopped")],
)
def test_a_rank_that_hangs_reaches_no_boundary_to_be_held_at(mode, said):
    hung = dataclasses.replace(FOUND, kind="RankHung")
    assert said in screen.block(hung, rules.of_mode(mode, None), interactive=False)[-1]


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((), "no single rank"),
        ((3,), "rank 3"),
        ((0, 1), "ranks 0 and 1"),
        ((0, 1, 2, 3, 4, 5), "ranks 0, 1, 2 and 3 more"),
    ],
)
def test_ranks_are_named(ranks, said):
    assert screen.names(ranks) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(90, "90s"), (600, "10m"), (7200, "2h"), (0.5, "0.5s"), (5, "5s")]
)
def test_durations(seconds, said):
    assert screen.duration(seconds) == said


def rank(number, **more):
    return RankReport(**{"rank": number, "pod": 0, "state": "running", "step": 7, "time": 0.0} | more)


def test_progress_of_a_few_ranks():
    line = screen.progress([rank(1, state="held"), rank(0, loss=2.5, steps_per_second=8.04)])
    assert line == "step 7: rank 0 loss 2.5000, 8.0 steps/s | rank 1 held at 7"


def test_progress_of_many_ranks():
    line = screen.progress([rank(n, loss=float(n), steps_per_second=4.0, step=n) for n in range(8)])
    assert line == "steps 0 to 7: 8 ranks | loss 0.0000 to 7.0000 | 4.0 steps/s"


def test_no_progress_before_the_first_step_and_after_the_end():
    assert screen.progress([rank(0, step=-1)]) is None
    assert screen.progress([rank(0, state="ended")]) is None
