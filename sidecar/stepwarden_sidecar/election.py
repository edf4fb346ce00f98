"""
Who is the job's hub: pure, the clock is an argument (any clock, in seconds).

Any pod's sidecar can be it. The one that is stays it for as long as it answers; when it falls silent,
the lowest pod that lives takes over, and one that comes back follows. Each hub begins a term of its own:
of two that act, as after a cut between pods, the later term wins, of the same term the lower pod.

A pod that no longer hears the hub asks others before it acts: where one of them still hears it, only the
way between is cut, and the pod waits, its ranks under the orders that they have.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

PATIENCE = 1.0  # seconds that a hub which fell silent, or a lower pod that answered, is waited for
COLD = 15.0  # the same before the job's first hub: pods start at different times, and pod 0 is to be it
HEARD = 1.2  # seconds: a hub that somebody heard since lives; each pod hears its hub once a second
FRESH = 1.0  # seconds for which an answer counts
WINDOW = 4  # lower pods asked at the same time
OPINIONS = 3  # higher pods asked where no lower one answers
STANDBYS = 2  # pods that keep a copy of what the hub knows
LIVES = 3.0  # seconds: a pod that reported since can be a standby


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """
    What a pod says of the hub: which pod it is, in which term, heard how many seconds ago.

    A pod that names itself acts as the hub. None: it knows no hub, and `term` is the last that it knew.
    """

    pod: int
    hub: int | None = None
    term: int = 0
    age: float = 0.0

    @property
    def acts(self) -> bool:
        """Whether the pod is the hub, by its own word."""
        return self.hub == self.pod

    @property
    def strength(self) -> tuple[int, int]:
        """What the stronger of two claims is greater in."""
        return (self.term, -(self.pod if self.hub is None else self.hub))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """To be the hub, in a term."""

    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """To follow the pod that is the hub, in its term."""

    hub: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """To ask again who is the hub. `hint` is the pod that others take for it."""

    hint: int | None = None


Role = Lead | Follow | Seek


@dataclass(slots=True)
class Election:
    """One pod's knowledge. `pods` is how many the job has, `since` when it last heard a hub, or started."""

    me: int
    pods: int
    since: float
    term: int = 0
    role: Role = field(default_factory=Seek)
    rounds: int = 0  # of questions that were answered, or not, since no hub is known
    views: dict[int, tuple[View, float]] = field(default_factory=dict)

    def heard(self, view: View, now: float) -> None:
        """Take in what another pod says."""
        known = range(self.pods)
        if view.pod != self.me and view.pod in known and (view.hub is None or view.hub in known):
            self.views[view.pod] = (view, now)

    def hub_answered(self, now: float) -> None:
        """Take in that the hub that is followed has answered."""
        self.since = now

    def lost(self) -> None:
        """Take in that the connection to the hub broke: who is it is asked anew."""
        if isinstance(self.role, Follow):
            self.role, self.rounds = Seek(hint=self.role.hub), 0
            self.views.clear()

    def view(self, now: float) -> View:
        """Say what this pod knows."""
        match self.role:
            case Lead(term=term):
                return View(pod=self.me, hub=self.me, term=term)
            case Follow(hub=hub, term=term):
                return View(pod=self.me, hub=hub, term=term, age=max(now - self.since, 0.0))
            case _:
                return View(pod=self.me, term=self.term)

    def decide(self, now: float) -> Role:
        """Decide anew who is the hub, as far as this pod knows."""
        fresh = [view for view, when in self.views.values() if now <= when + FRESH]
        role = next_role(self, fresh, now)
        if isinstance(role, Follow) and role != self.role:
            self.since = now
        if isinstance(role, Seek) and not isinstance(self.role, Seek):
            self.rounds = 0
        self.role = role
        self.term = max(self.term, *(view.term for view in fresh), 0, getattr(role, "term", 0))
        return role


def next_role(own: Election, fresh: Iterable[View], now: float) -> Role:
    """Return the pod's next role, by what others said lately."""
    views = list(fresh)
    mine = own.view(now)
    claims = [view for view in views if view.acts and view.strength > mine.strength]
    if mine.hub is None:
        claims = [view for view in views if view.acts and view.term >= own.term]
    if claims:
        best = max(claims, key=lambda view: view.strength)
        return Follow(hub=best.pod, term=best.term)
    if isinstance(own.role, Follow):
        return own.role
    known = max((view.term for view in views), default=0)
    if isinstance(own.role, Lead):  # a later term than its own, though nobody here leads in it: ask
        return own.role if known <= own.role.term else Seek(hint=alive(own, views))
    hint = alive(own, views)
    may = hint is None and not lower_lives(own, views) and patient(own, now)
    return Lead(term=max(own.term, known) + 1) if may else Seek(hint=hint)


def alive(own: Election, views: Iterable[View]) -> int | None:
    """Return the other pod that somebody has heard as the hub just now."""
    named = [v for v in views if v.hub not in (None, own.me) and v.age < HEARD and v.term >= own.term]
    return max(named, key=lambda view: view.strength).hub if named else None


def lower_lives(own: Election, views: Iterable[View]) -> bool:
    """Whether a pod that comes before this one answers: it is the one to take over."""
    return any(view.pod < own.me for view in views)


def patient(own: Election, now: float) -> bool:
    """Whether it was waited long enough for the hub to come back, or to be there at all."""
    if own.rounds == 0 or own.me >= own.pods:
        return False
    if own.term == 0:
        return own.me == 0 or now >= own.since + COLD
    return now >= own.since + PATIENCE


def questions(own: Election, hint: int | None) -> Iterator[list[int]]:
    """
    Yield the pods to ask, a few at a time: the next few only where none of those before has answered.

    First those that come before this one, and whom others take for the hub; at last some that come after.
    """
    first = [] if hint is None or hint == own.me else [hint]
    lower = range(min(own.me, own.pods))
    for begin in range(0, max(len(lower), 1), WINDOW):
        yield sorted({*lower[begin : begin + WINDOW], *first})
    yield [pod for pod in range(own.me + 1, min(own.me + 1 + OPINIONS, own.pods)) if pod not in first]


def standbys(heard: Mapping[int, float], hub: int, now: float) -> frozenset[int]:
    """Return the pods that keep a copy of what the hub knows: the lowest of those heard lately."""
    living = sorted(pod for pod, when in heard.items() if pod != hub and now <= when + LIVES)
    return frozenset(living[:STANDBYS])
