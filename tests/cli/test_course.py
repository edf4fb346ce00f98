import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden import policy
from stepwarden.cli import course, rules
from stepwarden.cli.course import Course
from stepwarden.policy import Rule
from stepwarden.wire import Finding, Instruction

HOLD = (Rule(severity="critical", action="Hold", timeout=10.0, then="Skip"),)


def finding(step, kind="NonFiniteGradient"):
    return Finding(kind=kind, severity="critical", step=step, message="")


def test_a_finding_opens_a_pause_that_the_timeout_ends():
    held = course.turn(Course(), HOLD, [finding(5)], None, 100.0)
    assert held.pause
    assert course.left(held, 104.0) == 6.0
    still = course.turn(held, HOLD, [finding(5)], None, 109.0)
    assert still == held
    over = course.turn(still, HOLD, [finding(5)], None, 110.0)
    assert over.instruction == Instruction(acknowledged=5, update="skip")
    assert over.pause is None
    assert not over.by_person


@pytest.mark.parametrize(
    ("then", "instruction", "stopped"),
    [
        ("Skip", Instruction(acknowledged=5, update="skip"), False),
        ("Observe", Instruction(acknowledged=5, update="apply"), False),
        ("Suspend", Instruction(), True),
        ("Fail", Instruction(), True),
    ],
)
def test_what_comes_after_the_timeout(then, instruction, stopped):
    after = [Rule(action="Hold", timeout=1.0, then=then)]
    held = course.turn(Course(), after, [finding(5)], None, 100.0)
    over = course.turn(held, after, [finding(5)], None, 101.0)
    assert (over.instruction, over.stopped) == (instruction, stopped)


def test_a_person_decides_before_the_timeout():
    held = course.turn(Course(), HOLD, [finding(5)], None, 100.0)
    chosen = course.turn(held, HOLD, [finding(5)], "apply", 101.0)
    assert chosen.instruction == Instruction(acknowledged=5, update="apply")
    assert chosen.by_person


def test_a_later_finding_pauses_again_from_then_on():
    first = course.turn(Course(), HOLD, [finding(5)], "skip", 100.0)
    again = course.turn(first, HOLD, [finding(5), finding(9)], None, 200.0)
    assert again.pause
    assert again.since == 200.0


def test_a_rank_that_failed_ends_the_run_by_itself():
    assert course.turn(Course(), policy.DEFAULT_RULES, [finding(5, "RankFailed")], None, 0.0) == Course()


def test_a_hold_that_was_asked_for_ends_by_an_answer():
    held = Course(instruction=Instruction(hold=True))
    assert course.turn(held, HOLD, [], None, 0.0) == held
    assert course.turn(held, HOLD, [], "skip", 0.0).instruction == Instruction()
    assert course.turn(held, HOLD, [], "stop", 0.0).stopped


@given(
    mode=st.sampled_from(["observe", "skip", "hold", "stop"]),
    steps=st.lists(st.integers(0, 20), max_size=5),
    nows=st.lists(st.floats(0, 5000), min_size=1, max_size=6),
)
def test_what_is_acknowledged_only_grows_and_the_second_look_does_nothing(mode, steps, nows):
    chosen = rules.of_mode(mode, 60.0)
    found = [finding(step) for step in steps]
    before = Course()
    for now in sorted(nows):
        after = course.turn(before, chosen, found, None, now)
        assert after.instruction.acknowledged >= before.instruction.acknowledged
        assert course.turn(after, chosen, found, None, now) == after
        before = after


def test_nothing_waits_for_ever_where_nobody_can_answer():
    endless = [Rule(action="Hold"), Rule(action="Hold", timeout=5.0)]
    assert all(rule.then == "Fail" for rule in rules.of_manifest(endless, None, interactive=False))
    assert rules.of_manifest(endless, None, interactive=True) == tuple(endless)
    assert {rule.timeout for rule in rules.of_manifest(endless, 3.0, interactive=True)} == {3.0}


@pytest.mark.parametrize(("interactive", "mode"), [(True, "hold"), (False, "observe")])
def test_a_script_is_held_only_where_a_person_can_answer(interactive, mode):
    assert rules.default_mode(interactive=interactive) == mode
