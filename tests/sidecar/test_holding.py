import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepwarden.wire import Instruction, Orders
from stepwarden_sidecar import handover
from stepwarden_sidecar.holding import PATIENCE, Rank, decide

HOLD, GO = Instruction(hold=True), Instruction()


def rank(step, state="running", since=0.0, speed=None):
    return Rank(state=state, step=step, since=since, steps_per_second=speed)


@pytest.mark.parametrize(
    ("before", "ranks", "now", "hold_at"),
    [
        (None, [rank(4), rank(5)], 0.0, 6),
        (None, [rank(4, speed=10.0), rank(5, speed=9.0)], 0.0, 9),  # fast ranks: further ahead
        (None, [], 0.0, 0),
        (None, [rank(7, "held"), rank(7, "held")], 0.0, 7),  # held by a finding: they stay where they are
        (None, [rank(7, "held"), rank(9, "ended")], 0.0, 7),
        (6, [rank(5), rank(4)], 9.0, 6),  # not there yet
        (6, [rank(6, "held"), rank(5)], 9.0, 6),
        (6, [rank(6, "held"), rank(6)], PATIENCE / 2, 6),  # about to wait
        (6, [rank(6, "held"), rank(6)], PATIENCE, 7),  # went through, and is stuck in the next step
        (6, [rank(6), rank(6)], 9.0, 6),
        (6, [rank(6, "held"), rank(8)], 0.0, 9),  # seen beyond it
        (6, [rank(6, "held"), rank(8, "held")], 0.0, 8),  # ranks that don't meet in collectives
        (6, [rank(6, "held"), rank(8, "failed")], 0.0, 6),
        (6, [], 0.0, 6),  # a hub that was started anew
    ],
)
def test_the_boundary(before, ranks, now, hold_at):
    assert decide(Orders(hold_at=before), HOLD, ranks, now).hold_at == hold_at


@pytest.mark.parametrize(
    ("before", "ranks", "hold_at"),
    [
        (57, [rank(-1), rank(57, "ended")], 0),  # the first of them is back, the other one on its way
        (57, [rank(-1), rank(-1)], 0),
        (57, [rank(57, "held"), rank(-1)], 0),  # who is held stays held
        (57, [rank(3, speed=10.0), rank(-1)], 7),
        (0, [rank(57, "held"), rank(3)], 0),
        (57, [rank(57, "held"), rank(2, "held")], 57),
        (None, [rank(-1), rank(57, "ended")], 0),
    ],
)
def test_who_begins_again_is_held_at_its_first_boundary(before, ranks, hold_at):
    assert decide(Orders(hold_at=before), HOLD, ranks, 0.0, anew=True).hold_at == hold_at


def test_releasing():
    assert decide(Orders(hold_at=6), GO, [rank(6, "held")], 0.0).hold_at is None


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (Orders(), Instruction(acknowledged=7, update="apply"), (0, 7, "apply")),
        (Orders(acknowledged=7, update="apply"), Instruction(acknowledged=9), (0, 9, "skip")),
        (Orders(acknowledged=7, update="apply"), Instruction(acknowledged=3), (0, 7, "apply")),
        (Orders(acknowledged=7, update="apply"), Instruction(acknowledged=7), (0, 7, "skip")),
        (Orders(acknowledged=7, update="apply"), Instruction(attempt=1, acknowledged=3), (1, 3, "skip")),
        (Orders(attempt=1, acknowledged=3), Instruction(acknowledged=7, update="apply"), (1, 3, "skip")),
    ],
)
def test_acknowledging(before, wanted, after):
    orders = decide(before, wanted, [], 0.0)
    assert (orders.attempt, orders.acknowledged, orders.update) == after


@pytest.mark.parametrize(
    ("copied", "orders", "after"),
    [
        (None, Orders(acknowledged=7, update="apply"), Instruction(acknowledged=7, update="apply")),
        (Instruction(acknowledged=9), Orders(acknowledged=7, update="apply"), Instruction(acknowledged=9)),
        (
            Instruction(acknowledged=7),
            Orders(acknowledged=7, hold_at=8),
            Instruction(hold=True, acknowledged=7),
        ),
        (
            Instruction(acknowledged=9, update="apply"),
            Orders(attempt=1, acknowledged=3),
            Instruction(attempt=1, acknowledged=3),
        ),
        (
            Instruction(attempt=1, acknowledged=3, save=1),
            Orders(acknowledged=9, update="apply", save=2),
            Instruction(attempt=1, acknowledged=3, save=2),
        ),
    ],
)
def test_the_next_hub_knows_what_was_acknowledged_last(copied, orders, after):
    assert handover.wanted(copied, orders) == after


instructions = st.builds(
    Instruction,
    hold=st.booleans(),
    attempt=st.integers(0, 2),
    acknowledged=st.integers(-1, 20),
    update=st.sampled_from(["skip", "apply"]),
)


@given(st.lists(instructions))
def test_acknowledged_only_grows_and_saying_it_again_changes_nothing(instructions):
    orders = Orders()
    for wanted in instructions:
        after = decide(orders, wanted, [rank(5)], 0.0)
        assert (after.attempt, after.acknowledged) >= (orders.attempt, orders.acknowledged)
        assert decide(after, wanted, [rank(5)], 0.0) == after
        orders = after


class Lockstep:
    """
    Ranks that meet in a collective in each step, and a hub that sees them late and is heard late.

    `reached` is the boundary that a rank came to last; it is there until it has `left` it. It
    comes to the next one only when all have left the one before.
    """

    def __init__(self, count):
        self.reached, self.left, self.known = [0] * count, [-1] * count, [Orders()] * count
        self.seen = [rank(0) for _ in range(count)]
        self.orders, self.now = Orders(), 0.0

    def waits(self, i):
        hold_at = self.known[i].hold_at
        return hold_at is not None and self.reached[i] >= hold_at and self.left[i] < self.reached[i]

    def go(self, i):
        if self.left[i] < self.reached[i]:
            if not self.waits(i):
                self.left[i] = self.reached[i]
        elif min(self.left) >= self.reached[i]:
            self.reached[i] += 1

    def see(self, i):
        new = rank(self.reached[i], "held" if self.waits(i) else "running", self.now)
        old = self.seen[i]
        if (old.state, old.step) != (new.state, new.step):
            self.seen[i] = new

    def decide(self, hold):
        self.orders = decide(self.orders, Instruction(hold=hold), self.seen, self.now)

    def hear(self, i):
        self.known[i] = self.orders

    def run_fairly(self, hold, turns):
        """Run with every delay bounded; ranks run on several steps in each turn."""
        for _ in range(turns):
            for i in range(len(self.reached)):
                self.go(i)
                self.see(i)
            self.now += PATIENCE / 4
            self.decide(hold)
            for i in range(len(self.reached)):
                self.hear(i)


schedules = st.lists(
    st.tuples(st.sampled_from(["go", "go", "see", "hear", "decide", "tick"]), st.integers(0, 3)), max_size=120
)


@settings(max_examples=300)
@given(st.integers(1, 4), schedules)
@example(2, [("decide", 0), ("hear", 0)] + [("go", 1), ("go", 0)] * 4)  # rank 1 hears of it too late
def test_ranks_in_lockstep_all_end_at_the_same_boundary(count, schedule):
    ranks = Lockstep(count)
    for what, which in schedule:
        if what == "tick":
            ranks.now += PATIENCE / 2
        elif what == "decide":
            ranks.decide(hold=True)
        else:
            getattr(ranks, what)(which % count)
    ranks.run_fairly(hold=True, turns=60)
    assert all(ranks.waits(i) for i in range(count))
    assert len(set(ranks.reached)) == 1
    before = list(ranks.reached)
    ranks.run_fairly(hold=True, turns=20)  # and stay there
    assert ranks.reached == before
    ranks.run_fairly(hold=False, turns=20)  # and go on when released
    assert min(ranks.reached) > max(before)
