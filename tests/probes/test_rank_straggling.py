"""RankStraggling: slow by its own work, beyond what steps differ by themselves."""

import random
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden.probes.ranks import rank_straggling
from stepwarden.probes.ranks.rank_straggling import KEPT, Lap, Part
from stepwarden.pulse import Pulse

OWN = {"data": 0.01, "forward": 0.02, "backward": 0.03, "optimizer": 0.005}


def part(period=0.1, steps=5, step=9, node="", typical=None, **own):
    return Part(steps, step, OWN | own, period, period if typical is None else typical, node)


def slow(laps, **more):
    return list(rank_straggling.slow(list(map(Lap, laps)), {**rank_straggling.DEFAULTS, **more}))


def recovered(rank, laps):
    return rank_straggling.recovered(rank, list(map(Lap, laps)), rank_straggling.DEFAULTS)


def laps(count, **second):
    return [{0: part(0.4), 1: part(0.4, **second)} for _ in range(count)]


def test_a_rank_that_is_plainly_slow_is_told_after_two_laps():
    assert slow(laps(1, forward=0.4)) == []
    [found] = slow(laps(2, forward=0.4, node="b"))
    assert (found.rank, found.phase, found.in_phase) == (1, "forward", (0.4, 0.02))
    finding = rank_straggling.tell([found], laps(1, forward=0.4)[0]).finding
    assert (finding.kind, finding.severity, finding.rank, finding.ranks) == (
        "RankStraggling",
        "warning",
        1,
        (1,),
    )
    assert (finding.step, finding.evidence["node"], finding.evidence["phase"]) == (9, "b", "forward")
    assert finding.evidence["factor"] == pytest.approx(0.445 / 0.065)
    assert "rank 1 on b is slow" in finding.message
    assert "most of it in the forward pass (0.4 s against 0.02 s)" in finding.message


def test_a_rank_that_is_slow_by_half_is_told_once_it_is_sure():
    assert slow(laps(7, data=0.07)) == []
    [found] = slow(laps(8, data=0.07))
    assert (found.rank, found.phase, round(found.factor, 2)) == (1, "data", 1.92)


@pytest.mark.parametrize(
    "second",
    [
        {},
        {"data": 0.035},  # 1.38 times
        {"data": 0.07, "period": 1.0},  # 6 % of the step
    ],
)
def test_what_matters_little_is_let_be(second):
    period = second.pop("period", 0.1)
    assert slow([{0: part(period), 1: part(period, **second)} for _ in range(KEPT)]) == []


def test_one_pause_is_none():
    pause = {0: part(), 1: part(20.0, data=20.0)}
    assert slow([*laps(9), pause, *laps(1)]) == []
    assert slow([*laps(8), pause]) == []


def test_times_below_20_ms_are_let_be():
    tiny = {"data": 0.0, "forward": 0.001, "backward": 0.001, "optimizer": 0.0}
    assert slow([{0: part(0.02, **tiny), 1: part(0.02, **tiny | {"data": 0.018})} for _ in range(KEPT)]) == []


def test_of_many_ranks_two_are_told_together():
    lap = {number: part(0.5, data=0.4 if number in {3, 5} else 0.01) for number in range(64)}
    found = slow([lap, lap])
    assert [each.rank for each in found] == [3, 5]
    message = rank_straggling.tell(found, lap).message
    assert message.startswith("rank 3 is slow (so is rank 5): it takes 0.455 s")


def test_a_rank_that_had_no_part_in_a_lap_begins_anew():
    without = {0: part(0.4), 2: part(0.4)}
    whole = {0: part(0.4), 1: part(0.4, forward=0.4), 2: part(0.4)}
    assert slow([whole, without, whole]) == []
    assert [each.rank for each in slow([without, whole, whole])] == [1]


def test_a_rank_recovers():
    assert not recovered(1, laps(12, forward=0.4))
    assert not recovered(1, [*laps(2, forward=0.4), *laps(7)])
    assert recovered(1, [*laps(2, forward=0.4), *laps(8)])


def test_sums_make_parts():
    start = Pulse(rank=0, step=3, time=0.0, steps=3, spent={"data": 1.0, "waiting": 2.0})
    end = replace(start, step=8, steps=8, spent={"data": 2.0, "waiting": 6.0}, median=0.9, node="n")
    made = rank_straggling.part(start, end)
    assert (made.own, made.period, made.total) == ({"data": 0.2}, 1.0, 0.2)
    assert (made.steps, made.step, made.typical, made.node) == (5, 7, 0.9, "n")
    made = rank_straggling.part(start, replace(end, spent={"data": float("inf"), "forward": -1.0}))
    assert made.own == {"data": 0.0, "forward": 0.0}


def jittered(kind, clock, ranks, count):
    """Laps of five steps whose times are drawn alike for all ranks."""
    draw = {
        "exponential": lambda: clock.expovariate(1 / 0.05),
        "now and then": lambda: 0.5 if clock.random() < 0.1 else 0.02,
        "uneven data": lambda: 0.02 * clock.choice([1, 1, 2, 3, 8]),
        "even": lambda: 0.05 * clock.uniform(0.9, 1.1),
    }[kind]
    steps = []
    for _ in range(count):
        drawn = {rank: [draw() for _ in range(5)] for rank in range(ranks)}
        steps = [*steps, *(max(step) for step in zip(*drawn.values(), strict=True))][-50:]
        period, typical = sum(steps[-5:]) / 5, median(steps)
        yield {
            rank: Part(5, 9, {"data": sum(each) / 5, "forward": 0.0}, period, typical)
            for rank, each in drawn.items()
        }


@pytest.mark.parametrize("kind", ["exponential", "now and then", "uneven data", "even"])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_jitter_that_moves_between_ranks_is_none(kind, ranks):
    clock, told, seen = random.Random(f"{kind} {ranks}"), 0, []  # noqa: S311 - no secret
    for lap in jittered(kind, clock, ranks, 1600 // ranks):
        seen = [*seen, lap][-KEPT:]
        told += bool(slow(seen))
    assert told == 0


@given(st.lists(st.floats(0, 9), min_size=2, max_size=9))
def test_the_others_median_is_theirs(seconds):
    lap = Lap({rank: Part(5, 9, {"data": each}, 1.0, 1.0) for rank, each in enumerate(seconds)})
    for rank in lap:
        rest = median(each for other, each in enumerate(seconds) if other != rank)
        assert lap.others(rank) == lap.others(rank, "data") == pytest.approx(rest)
    assert lap.others(0, "forward") == 0


numbers = st.floats() | st.floats(0, 10)
sums = st.dictionaries(st.sampled_from(["data", "forward", "waiting"]), numbers, max_size=3)
parts = st.builds(
    lambda start, end, median: rank_straggling.part(
        Pulse(rank=0, step=0, time=0.0, spent=start),
        Pulse(rank=0, step=4, time=0.0, spent=end, steps=5, median=median),
    ),
    *(sums, sums, st.none() | numbers),
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 3), parts, max_size=3), max_size=KEPT))
def test_any_laps_are_judged(seen):
    if found := slow(seen):
        assert rank_straggling.tell(found, seen[-1]).finding.message
    for rank in seen[-1] if seen else ():
        recovered(rank, seen)
