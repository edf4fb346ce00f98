from hypothesis import given
from hypothesis import strategies as st

from stepwarden_sidecar import limits
from stepwarden_sidecar.limits import Limits, Rate

RATE = Rate(each_second=10.0, burst=5.0)


@given(st.lists(st.floats(0.0, 2.0), max_size=200))
def test_nobody_gets_more_than_the_rate_and_one_burst(pauses):
    limited, now, allowed = Limits(), 0.0, 0
    for pause in pauses:
        now += pause
        allowed += limited.ask("one", RATE, now) == 0.0
        assert allowed <= RATE.burst + RATE.each_second * now + 1e-6


def test_who_waits_as_told_is_served():
    limited = Limits()
    waits = [limited.ask("one", RATE, 0.0) for _ in range(6)]
    assert waits[:5] == [0.0] * 5
    assert limited.ask("other", RATE, 0.0) == 0.0
    assert limited.ask("one", RATE, waits[5] + 1e-9) == 0.0


def test_requests_that_wait_are_counted():
    limited = Limits()
    limited.ask("one", RATE, 0.0)
    assert [limited.waits("one", 2) for _ in range(3)] == [True, True, False]
    limited.waited("one")
    assert limited.waits("one", 2)


def test_askers_without_end_are_forgotten_but_those_that_wait(monkeypatch):
    monkeypatch.setattr(limits, "ASKERS", 3)
    limited = Limits()
    for who in range(10):
        limited.ask(who, RATE, 0.0)
        if who == 1:
            limited.waits(who, 1)
    assert set(limited.askers) == {1, 8, 9}
