from dataclasses import replace

import pytest

from stepwarden.wire import Finding, Orders, RankReport
from stepwarden_sidecar.agreement import agree, spoils


def ranks(*steps, agreeing=True, state="running"):
    return [
        RankReport(rank=number, pod=0, state=state, step=step, time=0.0, agree=agreeing)
        for number, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("known", "expected", "agreed"),
    [
        pytest.param(ranks(4, 4), 2, 4, id="all-are-there"),
        pytest.param(ranks(5, 4), 2, 4, id="one-is-behind"),
        pytest.param(ranks(4), 2, -1, id="one-was-not-heard"),
        pytest.param([*ranks(9), replace(ranks(3)[0], rank=1, state="ended")], 2, 9, id="one-has-ended"),
    ],
)
def test_all_ranks_have_said_the_steps_up_to_the_last_ones(known, expected, agreed):
    assert agree(Orders(), known, 7, expected) == Orders(agreed=agreed, unsound=7)


def test_orders_stay_as_they_are_where_no_rank_waits():
    orders = Orders(hold_at=3)
    assert agree(orders, ranks(4, 4, agreeing=False), 2, 2) is orders
    assert agree(orders, ranks(4, 4, state="failed"), 2, 2) is orders


@pytest.mark.parametrize(
    ("kind", "severity", "bad"),
    [
        ("NonFiniteGradient", "critical", True),
        ("NonFiniteLoss", "info", False),
        ("ExplodingGradient", "critical", False),
    ],
)
def test_what_makes_a_step_bad(kind, severity, bad):
    assert spoils(Finding(kind=kind, severity=severity, step=1, message="")) is bad
