"""ExplodingGradient and LossSpike on whole curves: what healthy trainings do, and what blows up."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import ALL, Observation
from stepwarden.probes.history import Course, Peak, Remembered, Series

KINDS = ("ExplodingGradient", "LossSpike")
NOISE = random.Random(0)  # noqa: S311 - a curve, no secret


def noisy(*levels, spread=0.2):
    return [level * math.exp(NOISE.gauss(0, spread)) for level in levels]


def steps(losses, norms):
    """Yield the course at each step."""
    loss, norm = Remembered(), Remembered()
    for step, (one, other) in enumerate(zip(losses, norms, strict=True)):
        peak = Peak(name="body.0.weight", norm=other)
        yield step, Course(loss=loss.series(one), norm=norm.series(other), peak=peak)


def judged(kind, course, step=7):
    seen = Observation(rank=0, step=step, records=(course,))
    return ALL[kind].probe(seen, ALL[kind].DEFAULTS)


def alarms(losses, norms):
    """Return kind and step of all that is said above info."""
    return [
        (kind, step)
        for step, course in steps(losses, norms)
        for kind in KINDS
        if (found := judged(kind, course, step).finding) and found.severity != "info"
    ]


def ramp(first, last, count):
    return [first * (last / first) ** (index / max(count - 1, 1)) for index in range(count)]


CONVERGED = noisy(*ramp(2.3, 1e-4, 100), *[1e-4] * 100)
SIGNED = [NOISE.gauss(0, 0.05) for _ in range(100)]
HEALTHY = {
    "noisy": (noisy(*[2.0] * 200, spread=0.4), noisy(*[1.0] * 200, spread=0.6)),
    "curriculum": (
        noisy(*ramp(1.8, 0.5, 50), *[2.5] * 50, spread=0.1),
        noisy(*[0.9] * 50, *[3.0] * 50, spread=0.1),
    ),
    "a-hard-batch-late": ([*CONVERGED, 0.9], [*noisy(*ramp(1.0, 1e-4, 100), *[1e-4] * 100), 4.0]),
    "another-task": (
        [*noisy(*ramp(2.3, 0.01, 100)), 8.0, 5.0, 2.0],
        [*noisy(*ramp(3.0, 0.05, 100)), 15.0, 9.0, 3.0],
    ),
    "reinforced": (
        [*SIGNED, 0.4, -0.5, 0.3],
        [*noisy(*[0.5] * 100, spread=1.0), 4.0, 5.0, 2.0],
    ),
    "first-reward": ([1e-5] * 30 + [0.02, 0.05, 0.03], [1e-4] * 30 + [0.3, 0.5, 0.4]),
    "discriminator": (
        noisy(*ramp(1.4, 0.01, 100), 3.0, 0.5, 4.0, 0.02),
        noisy(*ramp(2.0, 0.1, 100), 8.0, 3.0, 9.0, 0.2),
    ),
    "wasserstein": ([-value for value in ramp(0.01, 200.0, 200)], noisy(*ramp(0.1, 20.0, 200))),
    "cosine-restarts": (
        noisy(*(ramp(2.0, 0.1, 50) + ramp(1.5, 0.08, 50)) * 2),
        noisy(*[1.0] * 200),
    ),
    "nothing-to-learn-yet": ([0.0] * 20 + [1.0], [0.0] * 20 + [3.0]),
    "clipped": (noisy(*[3.0] * 100), [1.0] * 100),
    "same-batch": ([0.7] * 100, [0.3] * 100),
}
# losses, norms, the step that is to be named
BAD = {
    "runaway": (
        [0.5] * 18 + [4.3, 23.0, 1400.0],
        [*noisy(*[0.4] * 18, spread=0.4), 24.0, 34.0, 700.0],
        18,
    ),
    "long-sequence": (noisy(*[1.5] * 40), [*noisy(*[0.6] * 39), 800.0], 39),
    "label-out-of-range": ([*noisy(*[0.3] * 60), 900.0], [*noisy(*[1.0] * 60), 120.0], 60),
    "clipped-yet-diverging": ([*noisy(*[0.5] * 30), 2.0, 8.0, 32.0], [1.0] * 33, 32),
    "from-the-start": ([2.3, 2.2, 400.0], [1.0, 3.0, 5000.0], 2),
    "likelihood-of-a-flow": ([-5.0, -5.2, -5.1, -4.9] * 10 + [300.0], [*noisy(*[2.0] * 40), 90.0], 40),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_curves_are_silent(name):
    assert alarms(*HEALTHY[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_what_blows_up_is_said_at_its_step(name):
    losses, norms, step = BAD[name]
    assert alarms(losses, norms)[0][1] == step


def test_the_worst_parameter_is_named_with_the_numbers():
    losses, norms, step = BAD["long-sequence"]
    *_, (_, course) = steps(losses, norms)
    found = judged("ExplodingGradient", course, step).finding
    assert (found.severity, found.parameter, found.module) == ("warning", "body.0.weight", "body.0")
    assert "the gradient norm is 800" in found.message
    assert found.evidence["deviations"] > 6


def test_a_spike_among_recent_losses_alone_is_an_info():
    """After long training a hard batch is far beyond the last losses, not beyond the first ones."""
    losses, norms = HEALTHY["a-hard-batch-late"]
    *_, (_, course) = steps(losses, norms)
    assert judged("LossSpike", course).finding.severity == "info"


@pytest.mark.parametrize(("norm", "status"), [(9.9e3, "ok"), (1.01e4, "bad")])
def test_an_adapter_has_an_absolute_limit(norm, status):
    adapter = Peak(name="layers.0.q.lora_B.default.weight", norm=norm)
    course = Course(
        loss=Series(value=1.0),
        norm=Series(value=norm, before=(norm,) * 20, count=20, highest=norm),
        adapter=adapter,
    )
    verdict = judged("ExplodingGradient", course)
    assert verdict.status == status
    if verdict.finding:
        assert verdict.finding.severity == "critical"
        assert verdict.finding.parameter == adapter.name
        assert verdict.finding.module == "layers.0.q.lora_B.default"


def test_any_parameter_can_be_given_a_limit():
    course = Course(loss=Series(value=None), norm=Series(value=30.0), peak=Peak(name=None, norm=30.0))
    seen = Observation(rank=0, step=0, records=(course,))
    probe = ALL["ExplodingGradient"]
    assert probe.probe(seen, {**probe.DEFAULTS, "limit_all": 20.0}).reason == "PastLimit"


NUMBER = st.floats() | st.none()
SERIES = st.builds(
    Series,
    value=NUMBER,
    before=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30).map(tuple),
    count=st.integers(0, 200),
    highest=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
)
PEAK = st.none() | st.builds(Peak, name=st.none() | st.text(), norm=st.floats())


@given(course=st.builds(Course, loss=SERIES, norm=SERIES, peak=PEAK, adapter=PEAK))
def test_any_record_is_judged(course):
    for kind in KINDS:
        verdict = judged(kind, course)
        assert verdict.message
        assert (verdict.finding is not None) == (verdict.status == "bad")


CURVE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=130)


@given(losses=CURVE, norms=CURVE, cut=st.integers(0, 100))
def test_a_window_that_was_cut_turns_nothing_bad(losses, norms, cut):
    pairs = list(zip(losses, map(abs, norms), strict=False))
    *_, (_, course) = steps(*zip(*pairs, strict=True))
    part = replace(
        course,
        loss=replace(course.loss, before=course.loss.before[cut:]),
        norm=replace(course.norm, before=course.norm.before[cut:]),
    )
    for kind in KINDS:
        assert judged(kind, part).status != "bad" or judged(kind, course).status == "bad"
