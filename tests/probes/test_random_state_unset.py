import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation
from stepwarden.probes.random_state_unset import DEFAULTS, RandomState, Setting, probe
from stepwarden.wire import from_line, to_line


def seed(found, **more):
    return Setting(name="torch.initial_seed()", asked=7, found=found, seed=True, **more)


def threads(found):
    return Setting(name="torch.get_num_threads()", asked=2, found=found)


def judged(*settings, began=True, rank=3, step=0):
    record = RandomState(settings=settings, began=began)
    return probe(Observation(rank=rank, step=step, records=(record,)), DEFAULTS)


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        pytest.param((seed(7), threads(2)), {}, id="as-asked"),
        pytest.param((seed(10),), {}, id="plus-rank"),
        pytest.param((seed(107),), {"step": 100, "began": False}, id="plus-step"),
        pytest.param((seed(110),), {"step": 100, "began": False}, id="plus-rank-and-step"),
    ],
)
def test_in_force(settings, more):
    verdict = judged(*settings, **more)
    assert (verdict.status, verdict.reason) == ("ok", "InForce")


@pytest.mark.parametrize(
    ("settings", "more", "severity"),
    [
        pytest.param((seed(1234),), {}, "warning", id="seeded-by-the-program"),
        pytest.param((seed(None),), {}, "warning", id="seeded-by-the-system"),
        pytest.param((threads(4),), {"began": False}, "warning", id="threads"),
        pytest.param((seed(1234),), {"began": False, "step": 100}, "info", id="a-number-in-mid-run"),
        pytest.param(
            (seed(1_764_448_000),), {"began": False, "step": 100}, "warning", id="the-clock-in-mid-run"
        ),
    ],
)
def test_not_in_force(settings, more, severity):
    verdict = judged(*settings, **more)
    assert (verdict.status, verdict.finding.severity) == ("bad", severity)


def test_the_message_says_what_was_asked_and_where_it_was_changed():
    verdict = judged(threads(2), seed(1234, file="train.py", line=9), threads(4))
    assert verdict.message == (
        "the run is not the one that was asked for, torch.initial_seed() is 1234 (set at train.py:9) and "
        "not 7: take that call out, or ask for what it sets; torch.get_num_threads() is 4 and not 2"
    )
    assert (verdict.finding.file, verdict.finding.line) == ("train.py", 9)


def test_nothing_asked_is_unknown():
    assert probe(Observation(rank=0, step=0), DEFAULTS).status == "unknown"


whole = st.integers(-(2**63), 2**63 - 1)  # what crosses the wire
found = st.none() | st.integers() | st.booleans()
some = st.builds(
    Setting,
    name=st.text(),
    asked=st.integers() | st.booleans(),
    found=found,
    seed=st.booleans(),
    file=st.none() | st.text(),
    line=st.none() | whole,
)


@given(st.lists(some, max_size=5), st.booleans(), whole, whole)
def test_no_record_makes_it_raise(settings, began, rank, step):
    verdict = judged(*settings, began=began, rank=rank, step=step)
    assert (verdict.finding is not None) == (verdict.status == "bad")
    if verdict.finding is not None:
        assert from_line(to_line(verdict.finding)).message == verdict.message
