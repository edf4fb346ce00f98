"""A training loop that is run alone, watched, and watched with one bad batch."""

import pytest
from hearing import Sidecar

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

OBSERVE = (policy.Rule(severity="info"),)
SKIP = (policy.Rule(action="Skip"),)


class Watching:
    """Attaches agents to this process, and says what they found."""

    def __init__(self, folder):
        self.sidecar = Sidecar(folder)
        self.attached = []

    def attach(self, rules):
        directory = str(self.sidecar.folder)
        self.attached.append(Attached(Environment(rank=0, directory=directory, rules=rules)))

    def steps(self, count):
        """Wait until so many steps were told, and return their numbers."""
        self.sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= count)
        return [taken.step for taken in self.sidecar.of(wire.StepTaken)]

    def alarms(self):
        return [(said.kind, said.step) for said in self.sidecar.of(wire.Finding) if said.severity != "info"]

    def unknown(self):
        return {kind: why for state in self.sidecar.of(wire.RankState) for kind, why in state.unknown.items()}

    def healthy(self, loop, steps):
        """Run a loop alone and observed: it gives the same numbers, and nothing is said."""
        alone = loop(None)
        self.attach(OBSERVE)
        assert loop(None) == alone
        assert len(self.steps(steps)) == steps
        assert self.alarms() == []
        assert not {"WatchFailed", "AgentFailed"} & {*self.unknown().values()}

    def poisoned(self, loop, step, at=None):
        """Run a loop whose batch of one step is bad: that is found at once, and its update is skipped."""
        self.attach(SKIP)
        numbers = loop(step)
        found = self.alarms()
        assert ("NonFiniteGradient", step if at is None else at) in found, found
        assert {said for _, said in found} == {step if at is None else at}
        assert all(number == number for number in numbers[-2:]), numbers  # noqa: PLR0124 - NaN is not itself

    def close(self):
        for attached in self.attached:
            attached.detach()
        self.sidecar.close()


@pytest.fixture
def watching(tmp_path_factory):
    made = Watching(tmp_path_factory.mktemp("s", numbered=True))
    yield made
    made.close()
