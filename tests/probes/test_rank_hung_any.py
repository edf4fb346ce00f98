"""RankHung, whatever is told: any pulses are judged, and what a job often does is never a hang."""

from hypothesis import given
from hypothesis import strategies as st
from pulsing import STACK, USERS, judge, still, waiting

from stepwarden.probes.ranks.seen import Seen
from stepwarden.pulse import Pulse

durations = st.one_of(st.none(), st.floats(allow_nan=True), st.floats(0, 100))
seconds = st.floats() | st.floats(0, 1000)
pulses = st.builds(
    Pulse,
    rank=st.integers(0, 3),
    step=st.integers(-(2**63), 2**63 - 1),
    time=seconds,
    phase=st.sampled_from(["starting", "data", "forward", "backward", "optimizer"]),
    still=seconds,
    stack=st.sampled_from(["", STACK, USERS, "x"]),
    file=st.none() | st.text(max_size=5),
    line=st.none() | st.integers(-(2**63), 2**63 - 1),
    collective=st.sampled_from(["", "", "all_reduce", "barrier", "send"]),
    sequence=st.integers(-(2**63), 2**63 - 1),
    waiting=seconds,
    marks=st.lists(st.sampled_from(["locked", "sleeping", "evaluating", "?"]), max_size=2).map(tuple),
    median=durations,
    spread=durations,
    longest=durations,
    steps=st.integers(-(2**63), 2**63 - 1) | st.integers(5, 9),
)
ranks = st.builds(
    Seen,
    pulse=pulses,
    state=st.sampled_from(["running", "running", "running", "held", "failed", "ended"]),
    silent=seconds,
    cut=st.booleans(),
    unmoved=seconds,
    within=seconds,
)


@given(st.lists(ranks, max_size=5), st.none() | st.integers(1, 5))
def test_any_pulses_are_judged(seen, expected):
    verdict = judge(*seen, expected=expected)
    assert (verdict.finding is not None) == (verdict.status == "bad")


@given(
    median=st.floats(0.01, 20.0),
    jitter=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8),
    into=st.floats(0.0, 1.0),
)
def test_a_rank_that_is_late_by_no_more_than_its_job_often_is_never_hangs(median, jitter, into):
    """All but the first wait for the time that the first one needs: up to thrice the median."""
    waits = 3 * median * into
    pace = {"median": median, "spread": 0.2 * median, "longest": 3 * median}
    others = [waiting(1 + number, waits * part, **pace) for number, part in enumerate(jitter)]
    assert judge(still(0, "forward", waits, **pace), *others).status == "ok"
