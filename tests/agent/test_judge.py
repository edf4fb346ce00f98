"""What is said again, and what is not."""

import pytest

from stepwarden import policy
from stepwarden.agent.environment import Environment
from stepwarden.agent.judge import Judge
from stepwarden.wire import Finding

OBSERVE = (policy.Rule(severity="info"),)
HOLD = (policy.Rule(severity="critical", action="Hold"),)


def said(rules, *severities):
    judge = Judge(Environment(rank=0, rules=rules))
    heard = []
    for step, severity in enumerate(severities):
        bad = (
            [] if severity is None else [Finding(kind="LossSpike", severity=severity, step=step, message="")]
        )
        heard += [finding.step for finding in judge.new(bad, {"LossSpike"})]
    return heard


@pytest.mark.parametrize(
    ("rules", "severities", "heard"),
    [
        pytest.param(OBSERVE, ("warning", "warning"), [0], id="while-it-lasts-once"),
        pytest.param(OBSERVE, ("warning", None, "warning"), [0, 2], id="again-when-it-comes-back"),
        pytest.param(OBSERVE, ("info", "warning", "warning"), [0, 1], id="again-when-it-is-worse"),
        pytest.param(HOLD, ("critical", "critical"), [0, 1], id="each-time-that-it-holds"),
    ],
)
def test_what_is_said(rules, severities, heard):
    assert said(rules, *severities) == heard


def test_what_is_not_asked_in_between_is_not_said_again():
    judge = Judge(Environment(rank=0, rules=OBSERVE))
    found = Finding(kind="ParameterUntied", severity="warning", step=0, message="")
    assert judge.new([found], {"ParameterUntied"})
    assert judge.new([], {"NonFiniteGradient"}) == []
    assert judge.new([found], {"ParameterUntied"}) == []
