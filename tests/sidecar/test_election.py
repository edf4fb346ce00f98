"""Who is the hub: by table, and in a simulated job whose pods die, come back and are cut off."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden_sidecar.election import (
    COLD,
    HEARD,
    PATIENCE,
    Election,
    Follow,
    Lead,
    Seek,
    View,
    questions,
    standbys,
)

TICK = 0.05
HEARTBEAT = 0.5
TIMEOUT = 0.4
PODS = 4


def at(me, views=(), *, now=PATIENCE, **more):
    """What a pod decides that heard these views just now; since 0 it hears no hub."""
    own = Election(**{"me": me, "pods": PODS, "since": 0.0, "term": 1, "rounds": 1} | more)
    for view in views:
        own.heard(view, now)
    return own.decide(now)


ACTS = View(pod=0, hub=0, term=1)
FOLLOWS = View(pod=2, hub=0, term=1, age=0.1)


@pytest.mark.parametrize(
    ("role", "decided"),
    [
        ({"me": 0, "term": 0, "now": 0.0}, Lead(term=1)),  # a new job's first pod waits for nobody
        ({"me": 0, "term": 0, "now": 0.0, "rounds": 0}, Seek()),  # but it asks once
        ({"me": 1, "term": 0, "now": COLD - 0.1}, Seek()),
        ({"me": 1, "term": 0, "now": COLD}, Lead(term=1)),
        ({"me": 1, "now": PATIENCE - 0.1}, Seek()),
        ({"me": 1}, Lead(term=2)),
        ({"me": 1, "views": [ACTS]}, Follow(hub=0, term=1)),
        ({"me": 1, "views": [View(pod=0)]}, Seek()),  # the lower pod lives: it is its turn
        ({"me": 1, "views": [View(pod=2)]}, Lead(term=2)),
        ({"me": 1, "views": [FOLLOWS]}, Seek(hint=0)),  # only the way to the hub is cut
        ({"me": 1, "views": [View(pod=2, hub=0, term=1, age=HEARD)]}, Lead(term=2)),
        ({"me": 0, "views": [View(pod=2, hub=0, term=4, age=0.1)]}, Lead(term=5)),  # it was itself
        ({"me": 0, "views": [View(pod=1, hub=1, term=2)]}, Follow(hub=1, term=2)),
        ({"me": 1, "term": 3, "views": [ACTS]}, Seek()),  # an old hub: it has to hear of term 3 first
        ({"me": 0, "role": Lead(term=1), "views": [View(pod=1, hub=1, term=2)]}, Follow(hub=1, term=2)),
        ({"me": 0, "role": Lead(term=2), "views": [View(pod=1, hub=1, term=2)]}, Lead(term=2)),
        ({"me": 1, "role": Lead(term=2), "views": [View(pod=0, hub=0, term=2)]}, Follow(hub=0, term=2)),
        ({"me": 0, "role": Lead(term=1), "views": [View(pod=3, term=4)]}, Seek()),
        ({"me": 2, "role": Follow(hub=0, term=1), "views": [View(pod=1)]}, Follow(hub=0, term=1)),
        (
            {"me": 2, "role": Follow(hub=0, term=1), "views": [View(pod=1, hub=1, term=2)]},
            Follow(hub=1, term=2),
        ),
        ({"me": 1, "views": [View(pod=PODS, hub=PODS, term=9), View(pod=0, hub=99, term=9)]}, Lead(term=2)),
    ],
)
def test_table(role, decided):
    assert at(**role) == decided


def test_who_is_asked():
    own = Election(me=6, pods=20, since=0.0)
    assert list(questions(own, 9)) == [[0, 1, 2, 3, 9], [4, 5, 9], [7, 8]]
    assert list(questions(Election(me=0, pods=3, since=0.0), None)) == [[], [1, 2]]
    assert list(questions(Election(me=1, pods=2, since=0.0), 1)) == [[0], []]


def test_the_lowest_pods_that_live_are_the_standbys():
    heard = {0: 9.0, 1: 5.0, 2: 9.0, 3: 9.0, 4: 9.0}
    assert standbys(heard, 0, 9.5) == {2, 3}


class Job:
    """Pods that ask each other, in ticks."""

    def __init__(self):
        self.now, self.cuts = 0.0, set()
        self.terms = [0] * PODS
        self.pods = [None] * PODS
        self.busy = [0.0] * PODS
        self.talked = [0.0] * PODS
        self.double = 0.0  # seconds with two hubs
        for pod in range(PODS):
            self.start(pod)

    def start(self, pod):
        if self.pods[pod] is None:
            self.pods[pod] = Election(me=pod, pods=PODS, since=self.now, term=self.terms[pod])
            self.busy[pod] = self.now

    def kill(self, pod):
        if self.pods[pod]:
            self.terms[pod] = self.pods[pod].term
            self.pods[pod] = None
        for other in filter(None, self.pods):
            if other.role == Follow(hub=pod, term=other.term) and not self.cut(other.me, pod):
                other.lost()  # its connection breaks

    def cut(self, one, other):
        return frozenset((one, other)) in self.cuts

    def ask(self, one, other):
        """One pod asks another one; False where that takes long, and brings nothing."""
        if self.cut(one, other):
            return False
        mine, theirs = self.pods[one], self.pods[other]
        if theirs is not None:
            theirs.heard(mine.view(self.now), self.now)
            self.decide(theirs)
            mine.heard(theirs.view(self.now), self.now)
        return True

    def decide(self, pod):
        before = pod.role
        role = pod.decide(self.now)
        if isinstance(role, Lead) and role != before:
            for other in range(PODS):
                if other != pod.me:
                    self.ask(pod.me, other)

    def tick(self):
        self.now += TICK
        for pod in filter(None, list(self.pods)):
            if self.pods[pod.me] is pod and self.now >= self.busy[pod.me]:
                self.busy[pod.me] = self.now + self.act(pod)
                self.decide(pod)
        leads = self.leads()
        self.double = self.double + TICK if len(leads) > 1 else 0.0

    def act(self, pod):
        """Do what the pod's role asks for, and return how long that takes."""
        match pod.role:
            case Follow(hub=hub):
                return self.talk(pod, hub)
            case Lead():
                return max([HEARTBEAT, *(0 if self.ask(pod.me, low) else TIMEOUT for low in range(pod.me))])
            case Seek(hint=hint):
                took = 0.1
                for asked in questions(pod, hint):
                    others = [other for other in asked if other != pod.me]
                    took += max((0 if self.ask(pod.me, other) else TIMEOUT for other in others), default=0)
                    if any(self.pods[other] and not self.cut(pod.me, other) for other in others):
                        break
                pod.rounds += 1
                return took

    def talk(self, pod, hub):
        if self.cut(pod.me, hub):
            if self.now >= pod.since + 2 * HEARTBEAT:
                pod.lost()
        elif self.pods[hub] is None or not isinstance(self.pods[hub].role, Lead):
            pod.lost()
        elif self.pods[hub].role.term >= pod.role.term:
            pod.hub_answered(self.now)
        return TICK if self.cut(pod.me, hub) else HEARTBEAT

    def leads(self):
        return [pod.me for pod in self.pods if pod and isinstance(pod.role, Lead)]

    def settled(self):
        """Whether one pod is the hub, and all others follow it."""
        alive = [pod for pod in self.pods if pod]
        leads = self.leads()
        return len(leads) == 1 and {pod.view(self.now).hub for pod in alive} == set(leads)

    def run(self, seconds):
        """Run until it is settled; return how long that took."""
        began = self.now
        while not self.settled():
            self.tick()
            assert self.now < began + seconds, self.pods
        return self.now - began


def test_a_new_job_has_pod_0_as_its_hub_at_once():
    job = Job()
    assert job.run(2.0) < 1.0
    assert job.leads() == [0]


@pytest.mark.parametrize("dead", [(0,), (0, 1), (0, 1, 2)])
def test_the_next_takes_over_and_stays_when_the_first_is_back(dead):
    job = Job()
    job.run(2.0)
    for pod in dead:
        job.kill(pod)
    assert job.run(4.0) < 2.0
    assert job.leads() == [len(dead)]
    for pod in dead:
        job.start(pod)
    job.run(2.0)
    assert job.leads() == [len(dead)]


def test_a_cut_between_two_pods_alone_makes_no_second_hub():
    job = Job()
    job.run(2.0)
    job.cuts = {frozenset((0, 1))}
    for _ in range(200):
        job.tick()
        assert job.leads() == [0]
    job.cuts = set()
    job.run(2.0)
    assert job.leads() == [0]


events = st.tuples(
    st.sampled_from(("kill", "start", "cut", "mend")),
    st.integers(0, PODS - 1),
    st.integers(0, PODS - 1),
    st.floats(0.0, 3.0),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(events, max_size=12))
def test_whatever_happens_there_is_one_hub_soon_after(happening):
    job = Job()
    job.run(2.0)
    for what, one, other, seconds in happening:
        if what in ("cut", "mend") and one != other:
            job.cuts = job.cuts ^ {frozenset((one, other))}
        elif what == "start" or sum(map(bool, job.pods)) == 1:
            job.start(one)
        elif what == "kill":
            job.kill(one)
        for _ in range(int(seconds / TICK)):
            job.tick()
    job.cuts = set()
    job.run(5.0)
    highest = max(pod.term for pod in job.pods if pod)
    assert {pod.term for pod in job.pods if pod} == {highest}


kills = st.lists(st.tuples(st.booleans(), st.integers(0, PODS - 1), st.floats(0.0, 3.0)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(kills)
def test_without_cuts_two_hubs_are_a_matter_of_a_moment(happening):
    job = Job()
    job.run(2.0)
    for kill, pod, seconds in happening:
        if kill and sum(map(bool, job.pods)) > 1:
            job.kill(pod)
        else:
            job.start(pod)
        for _ in range(int(seconds / TICK)):
            job.tick()
            assert job.double < 1.0
    assert job.run(4.0) < 2.5
