"""Healthy jobs of any pace and jitter, told in pulses as agents tell them: nothing may be said of one."""

import random
from dataclasses import asdict
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden.probes import settings as probes
from stepwarden.pulse import Pulse
from stepwarden.wire import RankReport
from stepwarden_sidecar.job import Known
from stepwarden_sidecar.pulses import Pulses

LOOK, STILL, MOVING = (
    0.5,
    0.5,
    1.0,
)  # seconds: an agent looks, and tells of a rank that stands still, or moves
STEPS, SOONER = 5, 0.25
JITTERS = {
    "even": lambda clock, pace: pace * clock.uniform(0.8, 1.2),
    "exponential": lambda clock, pace: clock.expovariate(1 / pace),
    "now and then": lambda clock, pace: pace * (5 if clock.random() < 0.1 else 0.5),
    "uneven data": lambda clock, pace: pace * clock.choice([0.5, 1, 1, 2, 4]),
}


class Rank:
    """A rank, and its agent: pulses of a step of which it works `own` seconds and waits for the rest."""

    def __init__(self, number, skew, *, sleeps):
        self.number, self.skew, self.sleeps = number, skew, sleeps
        self.steps, self.sent, self.looked, self.told_steps = 0, 0.0, 0.0, 0
        self.spent, self.seconds = {"data": 0.0, "waiting": 0.0}, []

    def step(self, began, own, whole, marks):
        """Yield what its agent tells in a step, with the times."""
        while self.looked + LOOK < began + whole:
            self.looked += LOOK
            into = self.looked - began
            if into <= 0:
                continue
            waits = max(0.0, into - own)
            still = waits or (into if self.sleeps else 0.0)
            if self.looked - self.sent >= (STILL if still >= STILL else MOVING) - 0.05:
                at = {"phase": "backward", "collective": "all_reduce", "waiting": waits} if waits else {}
                yield self.looked, self.pulse(self.looked, still=still, marks=() if waits else marks, **at)
        self.steps += 1
        self.spent = {"data": self.spent["data"] + own, "waiting": self.spent["waiting"] + whole - own}
        self.seconds = [*self.seconds, whole][-50:] if self.steps > 1 else []
        now = began + whole
        if self.steps - self.told_steps >= STEPS and now - self.sent >= SOONER:
            yield now, self.pulse(now)

    def pulse(self, now, **more):
        self.sent, self.told_steps = now, self.steps
        pace = {}
        if self.seconds:
            middle = median(self.seconds)
            spread = median(abs(each - middle) for each in self.seconds)
            pace = {"median": middle, "spread": spread, "longest": max(self.seconds)}
        at = {"rank": self.number, "step": self.steps, "steps": self.steps, "time": now + self.skew}
        return Pulse(**at, spent=self.spent, **{"phase": "data"} | pace | more)


def job(seed, *, ranks, pace, jitter, pauses):
    """Yield all pulses of a job in the order of their times."""
    clock = random.Random(seed)  # noqa: S311 - no secret
    made = [Rank(number, clock.uniform(-9e3, 9e3), sleeps=clock.random() < 0.5) for number in range(ranks)]
    now = 0.0
    for step in range(150):
        own = [JITTERS[jitter](clock, pace) for _ in made]
        marks = [()] * ranks
        if step == 0:
            own[clock.randrange(ranks)] += 60.0
        if step in pauses:
            who = clock.randrange(ranks)
            seconds, mark = clock.choice([(20.0, ()), (25.0, ("sleeping",)), (300.0, ("evaluating",))])
            own[who], marks[who] = seconds, mark
        whole = max(own)
        told = [
            each for rank, o, m in zip(made, own, marks, strict=True) for each in rank.step(now, o, whole, m)
        ]
        yield from sorted(told, key=lambda each: each[0])
        now += whole


def heard(pulses):
    """What a hub says of pulses that come as they are sent."""
    hub, found, last = Pulses(64, None, probes.DEFAULTS), [], {}
    for now, pulse in pulses:
        hub.take([pulse], now)
        last[pulse.rank] = (pulse, now)
        known = {
            rank: Known(RankReport(rank=rank, pod=0, state="running", step=0, time=each.time), when, when)
            for rank, (each, when) in last.items()
        }
        found += hub.look(known, now)
    return [(each.kind, each.step, each.message) for each in found]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    ranks=st.integers(2, 5),
    pace=st.floats(0.01, 3.0),
    jitter=st.sampled_from(sorted(JITTERS)),
    pauses=st.frozensets(st.integers(6, 149), max_size=3),
)
def test_nothing_is_said_of_a_healthy_job(seed, ranks, pace, jitter, pauses):
    assert heard(job(seed, ranks=ranks, pace=pace, jitter=jitter, pauses=pauses)) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_same_job_with_a_slow_rank_is_not_healthy(ranks):
    def slow(pulses):
        """Let the last rank need thrice its time, which the others wait for."""
        for now, pulse in pulses:
            data = pulse.spent["data"] * (3 if pulse.rank == ranks - 1 else 1)
            yield now, Pulse(**{**asdict(pulse), "spent": {**pulse.spent, "data": data}})

    found = heard(slow(job(1, ranks=ranks, pace=0.1, jitter="even", pauses=())))
    assert [kind for kind, _, _ in found] == ["RankStraggling"]
