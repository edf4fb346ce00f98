import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.attempt import NEVER, stamped
from stepwarden.policy import (
    ACTIONS,
    DEFAULT_RULES,
    KINDS,
    OBSERVE,
    PAUSING,
    SEVERITIES,
    Decision,
    PolicyError,
    Rule,
    decide,
    from_json,
    match,
    overdue,
    read_rule,
    read_rules,
    seconds,
    to_json,
)
from stepwarden.wire import Finding

HOLD_NAN = Rule(kinds=("NonFiniteGradient", "NonFiniteLoss"), action="Hold", timeout=60.0, then="Suspend")
SKIP_NAN = Rule(kinds=("NonFiniteGradient",), action="Skip")
FAIL_ALL = Rule(severity="critical", action="Fail")
WARN_ALL = Rule(severity="warning", action="Observe")


def finding(kind="NonFiniteGradient", severity="critical", step=7, attempt=0):
    return stamped(Finding(kind=kind, severity=severity, step=step, message="m"), attempt)


@pytest.mark.parametrize(
    ("rules", "found", "rule"),
    [
        ([HOLD_NAN, FAIL_ALL], finding(), HOLD_NAN),  # the first that matches
        ([FAIL_ALL, HOLD_NAN], finding(), FAIL_ALL),
        ([HOLD_NAN, FAIL_ALL], finding("RankFailed"), FAIL_ALL),
        ([FAIL_ALL, WARN_ALL], finding(severity="warning"), WARN_ALL),  # milder than the rule's severity
        ([HOLD_NAN], finding("RankFailed"), OBSERVE),  # no rule speaks of it
        ([], finding(), OBSERVE),
        ([Rule(severity="info", action="Fail")], finding(severity="info"), OBSERVE),  # info never pauses
        (DEFAULT_RULES, finding("RankFailed"), DEFAULT_RULES[0]),
        (DEFAULT_RULES, finding(severity="warning"), OBSERVE),
        (DEFAULT_RULES, finding("RankFailed", severity="warning"), OBSERVE),  # one of its threads
        (DEFAULT_RULES, finding("RankHung"), DEFAULT_RULES[1]),  # it can't hold: it reaches no boundary
        (DEFAULT_RULES, finding("AKindOfALaterVersion"), DEFAULT_RULES[2]),
    ],
)
def test_match(rules, found, rule):
    assert match(rules, found) == rule


@pytest.mark.parametrize(
    ("rules", "findings", "acknowledged", "action", "until"),
    [
        ([HOLD_NAN], [], NEVER, None, None),
        ([HOLD_NAN], [finding(step=7)], NEVER, "Hold", (0, 7)),
        ([HOLD_NAN], [finding(step=7)], (0, 6), "Hold", (0, 7)),
        ([HOLD_NAN], [finding(step=7)], (0, 7), None, None),
        ([HOLD_NAN], [finding(step=7), finding(step=9)], (0, 7), "Hold", (0, 9)),
        ([HOLD_NAN], [finding(step=7), finding(step=9)], NEVER, "Hold", (0, 9)),
        ([HOLD_NAN], [finding(step=9), finding(step=7, attempt=1)], (0, 9), "Hold", (1, 7)),  # begun again
        ([HOLD_NAN], [finding(step=9), finding(step=7, attempt=1)], NEVER, "Hold", (1, 7)),
        ([HOLD_NAN], [finding(step=9), finding(step=7, attempt=1)], (1, 7), None, None),
        ([HOLD_NAN, FAIL_ALL], [finding(step=7), finding("RankFailed", step=8)], NEVER, "Fail", (0, 8)),
        ([SKIP_NAN], [finding()], NEVER, None, None),  # dealt with in the rank
        ([WARN_ALL], [finding(severity="warning")], NEVER, None, None),
        ([SKIP_NAN, FAIL_ALL], [finding(step=9), finding("RankFailed", step=8)], NEVER, "Fail", (0, 8)),
    ],
)
def test_decide(rules, findings, acknowledged, action, until):
    decision = decide(rules, findings, acknowledged)
    assert (decision and decision.action, decision and decision.until) == (action, until)


kinds = st.sampled_from(["*", *KINDS])
rules = st.builds(
    Rule,
    kinds=st.lists(kinds, min_size=1, max_size=3).map(tuple),
    severity=st.sampled_from(SEVERITIES),
    action=st.sampled_from(ACTIONS),
    timeout=st.none() | st.floats(min_value=0, max_value=1e6),
    then=st.none() | st.sampled_from(ACTIONS),
)
many_findings = st.lists(
    st.builds(
        finding,
        kind=st.sampled_from(KINDS),
        severity=st.sampled_from(SEVERITIES),
        step=st.integers(min_value=0, max_value=50),
        attempt=st.integers(min_value=0, max_value=2),
    ),
    max_size=8,
)


@given(st.lists(rules, max_size=4), many_findings)
def test_acknowledging_a_decision_ends_it(rules, findings):
    decision, acknowledged, turns = decide(rules, findings), NEVER, 0
    while decision:
        assert decision.action in PAUSING
        assert decision.until > acknowledged
        acknowledged, turns = decision.until, turns + 1
        decision = decide(rules, findings, acknowledged)
    assert turns <= 1


@given(st.lists(rules, max_size=4), many_findings, st.randoms(use_true_random=False))
def test_a_decision_does_not_hang_on_the_order_of_the_findings(rules, findings, random):
    first = decide(rules, findings)
    random.shuffle(findings)
    second = decide(rules, findings)
    assert (first and (first.action, first.until)) == (second and (second.action, second.until))


@pytest.mark.parametrize(
    ("timeout", "then", "now", "action"),
    [
        (None, None, 1e9, "Hold"),  # waits for a person
        (60.0, None, 1e9, "Hold"),
        (None, "Fail", 1e9, "Hold"),
        (60.0, "Suspend", 159.9, "Hold"),
        (60.0, "Suspend", 160.0, "Suspend"),
        (0.0, "Skip", 100.0, "Skip"),
    ],
)
def test_overdue(timeout, then, now, action):
    rule = Rule(action="Hold", timeout=timeout, then=then)
    assert overdue(Decision(action="Hold", rule=rule, findings=(finding(),)), since=100.0, now=now) == action


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90.0), ("2h", 7200.0), ("1h30m", 5400.0), ("1m0.5s", 60.5), ("0s", 0.0), ("100m", 6000.0)],
)
def test_seconds(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "90", "h", "1d", "-1s", "1m1h", "2 h", "1.5h", "1h\n"])
def test_what_is_no_duration(text):
    with pytest.raises(PolicyError, match="is not a duration: write hours, minutes and seconds"):
        seconds(text)


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        ({"action": "Hold"}, Rule(action="Hold")),
        (
            {
                "kinds": ["NonFiniteLoss"],
                "severity": "info",
                "action": "Hold",
                "timeout": "1m",
                "then": "Skip",
            },
            Rule(kinds=("NonFiniteLoss",), severity="info", action="Hold", timeout=60.0, then="Skip"),
        ),
        ({"kinds": ["*"], "action": "Observe", "timeout": None, "then": None}, Rule(action="Observe")),
    ],
)
def test_read_rule(raw, rule):
    assert read_rule(raw) == rule


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({}, "has no action: give one of Observe, Skip, Hold"),
        ({"action": "Explode"}, "'Explode' is not an action: give one of Observe"),
        ({"action": "Hold", "then": "Explode"}, "'Explode' is not an action"),
        (
            {"action": "Hold", "kinds": ["Nan"]},
            r"'Nan' is not a kind of finding: give one of \*,",
        ),
        ({"action": "Hold", "severity": "fatal"}, "'fatal' is not a severity: give one of info, warning"),
        ({"action": "Hold", "timeout": "soon"}, "'soon' is not a duration"),
        ({"action": "Hold", "often": 3}, "unknown field 'often' in onFinding"),
        (
            {"action": "Hold", "times": 3},
            "times in onFinding bounds restarts: give it with",
        ),
        ({"action": "Restart", "times": 0}, "times is 0 in onFinding: give a whole number above 0"),
    ],
)
def test_a_rule_that_can_not_be_meant(raw, sentence):
    with pytest.raises(PolicyError, match=sentence):
        read_rule(raw)


@pytest.mark.parametrize("raw", [None, []])
def test_no_rules_are_the_default_rules(raw):
    assert read_rules(raw) == DEFAULT_RULES


@given(st.lists(rules, max_size=4).map(tuple))
def test_rules_travel_as_json(rules):
    assert from_json(to_json(rules)) == rules


def test_actions_are_listed_weakest_first():
    assert ACTIONS == ("Observe", "Skip", "Hold", "Restart", "Suspend", "Fail")
    assert SEVERITIES == ("info", "warning", "critical")
