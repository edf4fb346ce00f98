"""What the hub makes of all ranks' pulses: by its own clock, said once, over when it is over."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import settings
from stepwarden.pulse import Pulse
from stepwarden.wire import RankReport
from stepwarden_sidecar.job import Known
from stepwarden_sidecar.pulses import Pulses

from .conftest import eventually

HOUR = 3600.0
SPENT = {"data": 0.01, "forward": 0.02, "backward": 0.02, "optimizer": 0.0, "waiting": 0.0}


MOVES = {"phase": "data", "still": 0.0, "waiting": 0.0, "collective": "", "marks": (), "stack": ""}


class World:
    """Ranks at ten steps a second, and a hub that looks at them; `skew` is what their clocks differ by."""

    def __init__(self, count=2, skew=HOUR, probes=settings.DEFAULTS):
        self.pulses = Pulses(64, count, probes)
        self.now, self.skew, self.count = 1000.0, skew, count
        self.states = dict.fromkeys(range(count), "running")
        self.last = {}
        self.heard = dict.fromkeys(range(count), self.now)
        self.found = []

    def clock(self, rank):
        return self.now + self.skew * rank

    def beat(self, rank, **more):
        """A rank says something; what isn't given is as it was."""
        before = self.last.get(rank) or Pulse(
            rank=rank, step=0, time=0.0, median=0.1, spread=0.01, longest=0.15, file="t.py", line=3
        )
        self.last[rank] = replace(before, **{"time": self.clock(rank)} | more)
        self.heard[rank] = self.now
        self.pulses.take([self.last[rank]], self.now)

    def steps(self, rank, count=5, **spent):
        """A rank has made more steps."""
        before = self.last.get(rank)
        done, sums = (before.steps, before.spent) if before else (0, {})
        done += count
        sums = {name: sums.get(name, 0.0) + count * each for name, each in {**SPENT, **spent}.items()}
        self.beat(rank, step=done, steps=done, spent=sums, **MOVES)

    def look(self):
        known = {
            rank: Known(
                RankReport(rank=rank, pod=rank, state=state, step=0, time=self.last[rank].time),
                self.heard[rank],
                self.now,
            )
            for rank, state in self.states.items()
            if rank in self.last
        }
        found = self.pulses.look(known, self.now)
        self.found += found
        return found

    def train(self, seconds, **slow):
        """Let all ranks make steps; `slow` are the last one's."""
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            for rank in range(self.count):
                self.steps(rank, **slow if rank == self.count - 1 else {})
            self.look()

    def wait(self, seconds, **of):
        """Let time go by while ranks stand as they are told: `of` are what each says, by its name."""
        began = self.now
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            for name, more in of.items():
                lasts = self.now - began
                durations = {"waiting": lasts} if more.get("collective") else {"still": lasts}
                self.beat(int(name[-1]), **durations | more)
            self.look()


WAITS = {"collective": "all_reduce", "phase": "backward"}
SLEEPS = {"phase": "forward", "marks": ("sleeping",)}


def test_a_hang_is_said_once_within_three_seconds_and_is_over_when_it_is_over(caplog):
    caplog.set_level("INFO")
    world = World()
    world.train(5)
    world.wait(30, rank0=WAITS, rank1=SLEEPS)
    [found] = world.found
    assert (found.kind, found.rank, found.step) == ("RankHung", 1, 50)
    assert found.evidence["waiting"][0]["seconds"] < 3
    world.train(5)
    assert "RankHung is over" in caplog.text
    assert world.pulses.over == [found]
    world.wait(3, rank0=WAITS, rank1=SLEEPS)
    assert [each.step for each in world.found] == [50, 100]


@pytest.mark.parametrize("skew", [0.0, HOUR, -HOUR])
def test_a_rank_that_says_nothing_is_known_by_the_hubs_clock(skew):
    world = World(skew=skew)
    world.train(5)
    world.wait(6, rank0=WAITS)
    [found] = world.found
    assert (found.kind, found.rank) == ("RankHung", 1)
    assert "network" in found.message


def test_what_a_pod_says_again_is_no_new_word():
    world = World()
    world.train(5)
    for _ in range(12):
        world.now += 0.5
        world.beat(0, **WAITS, waiting=world.now - 1005.0)
        world.pulses.take([world.last[1]], world.now)
        world.heard[1] = world.now
        world.look()
    [found] = world.found
    assert found.rank == 1
    assert "said nothing" in found.message


def test_an_agent_that_says_where_its_rank_is_but_not_what_it_is_at_is_no_hang():
    world = World()
    world.train(5)
    for _ in range(40):
        world.now += 0.5
        world.beat(0, **WAITS, waiting=world.now - 1005.0)
        world.last[1] = replace(world.last[1], time=world.clock(1))  # its report's time is taken from here
        world.heard[1] = world.now
        world.look()
    assert world.found == []


def test_after_a_hold_nothing_that_lasted_meanwhile_counts():
    world = World()
    world.train(5)
    world.states = {0: "held", 1: "held"}
    world.wait(60, rank0=WAITS, rank1=SLEEPS)
    world.states = {0: "running", 1: "running"}
    world.now += 0.5
    world.beat(0, **WAITS, waiting=60.0)
    world.beat(1, **SLEEPS, still=60.0)
    assert world.look() == []


def test_a_hub_that_was_stopped_itself_blames_nobody():
    world = World()
    world.train(5)
    world.beat(0, **WAITS, waiting=0.1)
    world.look()
    world.now += 600
    world.beat(0, waiting=600.0)
    assert world.look() == []


def test_a_rank_that_is_another_process_begins_anew():
    world = World()
    world.train(5)
    for _ in range(100):
        world.now += 0.5
        world.beat(0, **WAITS, waiting=world.now - 1005.0, steps=1, step=1)
        world.beat(1, **SLEEPS, still=world.now - 1005.0, steps=1, step=1)
        world.look()
    assert world.found == []


def test_a_straggler_is_said_once_and_again_after_it_recovered(caplog):
    caplog.set_level("INFO")
    world = World()
    world.train(10, forward=0.4)
    [found] = world.found
    assert (found.kind, found.rank, found.evidence["phase"]) == ("RankStraggling", 1, "forward")
    world.train(30)
    assert "RankStraggling is over: rank 1" in caplog.text
    assert len(world.found) == 1
    world.train(30, forward=0.4)
    assert [each.rank for each in world.found] == [1, 1]


def test_a_lap_with_an_evaluation_says_nothing():
    world = World()
    for _ in range(20):
        world.now += 1.0
        world.beat(1, marks=("evaluating",), still=0.6)
        world.steps(0)
        world.steps(1, data=2.0)
        world.look()
    assert world.found == []


@pytest.mark.parametrize("kind", ["RankHung", "RankStraggling"])
def test_a_probe_that_is_off_is_not_asked(kind):
    probes = {name: each for name, each in settings.DEFAULTS.items() if name != kind}
    world = World(probes=probes)
    world.train(10, forward=0.4)
    world.wait(10, rank0=WAITS, rank1=SLEEPS)
    assert {each.kind for each in world.found} == {"RankHung", "RankStraggling"} - {kind}


numbers = st.floats() | st.floats(0, 50)
pulses = st.builds(
    Pulse,
    rank=st.integers(-1, 70),
    step=st.integers(-(2**63), 2**63 - 1),
    time=numbers,
    phase=st.sampled_from(["starting", "data", "forward", "backward", "optimizer"]),
    still=numbers,
    collective=st.sampled_from(["", "barrier"]),
    waiting=numbers,
    marks=st.sampled_from([(), ("locked",), ("evaluating",)]),
    median=st.none() | numbers,
    spread=st.none() | numbers,
    longest=st.none() | numbers,
    steps=st.integers(-3, 100),
    spent=st.dictionaries(st.sampled_from(["data", "forward", "waiting"]), numbers),
)
states = st.sampled_from(["running", "held", "failed", "ended"])


@given(st.lists(st.tuples(st.lists(pulses, max_size=4), numbers, states), max_size=12))
def test_any_pulses_at_any_time_are_taken(turns):
    hub = Pulses(64, None, settings.DEFAULTS)
    for said, now, state in turns:
        hub.take(said, now)
        report = {r: RankReport(rank=r, pod=0, state=state, step=0, time=now) for r in range(3)}
        hub.look({rank: Known(each, now, now) for rank, each in report.items()}, now)
    assert set(hub.hearts) <= set(range(64))


async def test_pods_relay_pulses_and_their_hub_names_the_rank_that_hangs(sidecar, agent):
    hub = await sidecar("pod0", STEPWARDEN_RANKS="2", STEPWARDEN_PROBES='{"RankHung": {"seconds": 0.5}}')
    other = await sidecar("pod1", STEPWARDEN_RANKS="2", STEPWARDEN_POD="1", STEPWARDEN_HUB=hub.url)
    ranks = [agent(hub, 0), agent(other, 1)]
    began = time.monotonic()

    async def tell():
        lasts = time.monotonic() - began
        fit = {"step": 9, "time": time.time(), "steps": 9, "median": 0.02, "spread": 0.0, "longest": 0.1}
        for rank in ranks:
            rank.is_("running", 9)
        ranks[0].send(Pulse(rank=0, **fit, phase="backward", collective="all_reduce", waiting=lasts))
        ranks[1].send(Pulse(rank=1, **fit, phase="forward", still=lasts, stack="here", file="t.py", line=7))
        return await hub.found()

    [found] = await eventually(tell)
    assert (found.kind, found.rank, found.file, found.line) == ("RankHung", 1, "t.py", 7)
    assert found.evidence["stacks"] == {"1": "here"}
    orders = await eventually(lambda: (told := ranks[1].orders()) and told.told and told)
    assert [each.kind for each in orders.told] == ["RankHung"]
