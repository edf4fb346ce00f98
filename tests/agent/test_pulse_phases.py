"""Where a rank is in its step and how long each part took: events and a clock, nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.agent.pulse.phases import PARTS, WAITING, WINDOW, Phases

USUAL = {
    "data": 1.0,
    "forward": 2.0,
    "backward": 4.0,
    "clipping": 0.5,
    "update": 0.25,
    "held": 0.0,
    "waited": 0.0,
}


class Clock:
    """Tells a rank's events at the times that are given, and how long it waited in collectives."""

    def __init__(self):
        self.now = self.waited = 0.0
        self.phases = Phases(lambda: self.waited)
        self.step, self.since = 0, None

    def after(self, seconds, event, *more, waited=0.0, **named):
        self.now += seconds
        self.waited += waited
        getattr(self.phases, event)(self.now, *more, **named)

    def boundary(self, seconds):
        period = None if self.since is None else self.now + seconds - self.since
        self.after(seconds, "boundary", self.step, period)
        self.since = self.now

    def one(self, **other):
        """Make a step of usual lengths, but for others; `waited` is of the forward pass."""
        took = USUAL | other
        self.after(took["data"], "forward")
        self.after(took["forward"], "backward", waited=took["waited"])
        self.after(took["backward"], "behind", 0.0)
        self.boundary(took["clipping"])
        self.after(took["held"], "released", skipped=False)
        self.since += took["held"]
        self.after(took["update"], "stepped")
        self.step += 1


@pytest.fixture
def clock():
    return Clock()


def test_each_part_of_a_step_is_counted_once_the_step_is_whole(clock):
    clock.one()
    clock.one()
    # the first data are part of the start, the last update of a step that is not whole yet
    steps, spent = clock.phases.spent
    assert (steps, spent) == (
        2,
        {"data": 1.0, "forward": 4.0, "backward": 8.0, "optimizer": 1.25, "waiting": 0.0},
    )


def test_where_it_is(clock):
    phases, seen = clock.phases, []
    for event in ("forward", "backward", "behind", "boundary", "released", "stepped", "forward"):
        seen.append((phases.phase, phases.step))
        match event:
            case "boundary":
                clock.boundary(1.0)
            case "behind":
                clock.after(1.0, event, 0.0)
            case "released":
                clock.after(1.0, event, skipped=False)
            case _:
                clock.after(1.0, event)
    assert seen == [
        ("starting", 0),
        ("forward", 0),
        ("backward", 0),
        ("optimizer", 0),
        ("optimizer", 0),
        ("optimizer", 0),
        ("data", 1),
    ]
    assert (phases.phase, phases.step) == ("forward", 1)


def test_an_update_that_is_left_out_ends_its_step_as_well(clock):
    clock.after(1.0, "forward")
    clock.boundary(1.0)
    clock.after(0.0, "released", skipped=True)
    assert (clock.phases.phase, clock.phases.step) == ("data", 1)


def test_waiting_in_collectives_is_taken_out_of_every_part(clock):
    clock.one()
    clock.one(forward=7.0, waited=5.0)
    spent = clock.phases.spent[1]
    assert (spent["forward"], spent[WAITING]) == (4.0, 5.0)


def test_behind_the_last_gradient_a_backward_pass_waits_for_the_others(clock):
    clock.after(1.0, "forward")
    clock.after(1.0, "backward")
    clock.after(10.0, "behind", clock.now + 3.0)
    clock.boundary(0.0)
    spent = clock.phases.spent[1]
    assert (spent["backward"], spent[WAITING]) == (3.0, 7.0)


def test_gradients_of_an_earlier_pass_say_nothing_of_this_one(clock):
    clock.after(5.0, "forward")
    clock.after(1.0, "backward")
    clock.after(10.0, "behind", 4.0)
    clock.boundary(0.0)
    assert clock.phases.spent[1]["backward"] == 10.0


def test_between_micro_batches_it_is_at_the_data(clock):
    for _ in range(2):
        clock.after(1.0, "forward")
        clock.after(1.0, "backward")
        clock.after(1.0, "behind", 0.0)
        clock.after(3.0, "forward")
        clock.after(1.0, "backward")
        clock.after(1.0, "behind", 0.0)
        clock.boundary(1.0)
        clock.after(0.0, "released", skipped=False)
        clock.after(0.0, "stepped")
        clock.step += 1
    assert clock.phases.spent[1]["data"] == 7.0
    clock.after(1.0, "forward")
    clock.after(1.0, "backward")
    clock.after(1.0, "behind", 0.0)
    assert clock.phases.phase == "data"  # as the step before had two passes
    clock.after(1.0, "forward")
    clock.after(1.0, "backward")
    clock.after(1.0, "behind", 0.0)
    assert clock.phases.phase == "optimizer"


def test_two_optimizers_make_one_step_of_one_length(clock):
    phases = clock.phases
    for step in range(3):
        for _ in range(2):
            clock.after(1.0, "forward")
            clock.step = step
            clock.boundary(1.0)
            clock.after(0.0, "released", skipped=False)
            clock.after(0.0, "stepped")
    assert phases.spent[0] == 3
    assert list(phases.seconds) == [4.0, 4.0]
    assert phases.step == 3


def test_the_pace_is_that_of_the_last_steps_without_holds(clock):
    assert clock.phases.pace() == (None, None, None)
    for _ in range(WINDOW + 10):
        clock.one(held=100.0)
    clock.one(forward=12.0)
    assert clock.phases.pace() == (7.75, 0.0, 17.75)


TIMES = st.floats(0, 1e3)
STEP = st.fixed_dictionaries(
    dict.fromkeys(("data", "forward", "backward", "clipping", "update", "held"), TIMES)
    | {"share": st.floats(0, 1)}
)


@given(st.lists(STEP, min_size=2))
def test_all_time_but_the_agents_own_is_counted_somewhere(steps):
    clock, total = Clock(), 0.0
    clock.one()
    for step in steps:
        waited = step.pop("share") * step["forward"]
        clock.one(**step, waited=waited)
        total += waited
    count, spent = clock.phases.spent
    assert count == len(steps) + 1
    assert all(spent[part] >= 0 for part in PARTS)
    assert spent[WAITING] == pytest.approx(total)
    whole = clock.now - sum(step["held"] for step in steps) - 1.0 - steps[-1]["update"]
    assert sum(spent.values()) == pytest.approx(whole)
