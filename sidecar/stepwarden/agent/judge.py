"""From a reading of a step to its findings: observes, asks the probes, remembers what was said."""

import math
from collections import deque
from collections.abc import Iterable, Mapping

from torch.optim import Optimizer

from stepwarden import policy
from stepwarden.agent.environment import Environment
from stepwarden.agent.looks import blame
from stepwarden.agent.looks.parameters import Parameters
from stepwarden.agent.looks.reading import Reading, Values
from stepwarden.agent.watch import Moment
from stepwarden.probes import ALL, NonFinite, Observation, nonfinite_gradient, nonfinite_parameter
from stepwarden.wire import Finding, Severity

HISTORY = 100  # steps whose losses and gradient norms are remembered


class Judge:
    """What is known of one optimizer."""

    def __init__(self, environment: Environment) -> None:
        """Begin before its first step."""
        self.environment = environment
        self.count = 0  # of its steps
        self.parameters: Parameters | None = None
        self.norms: deque[float] = deque(maxlen=HISTORY)
        self.losses: deque[float] = deque(maxlen=HISTORY)
        self.silent: Mapping[str, Severity] = {}  # what was said, is only observed, and lasts
        self.since: int | None = None
        self.unknown: dict[str, str] = {}

    def observe(
        self, moment: Moment, values: Values, records: tuple[object, ...], *, late: bool
    ) -> Observation:
        """Put what was read as plain numbers, with a closer look where something is bad."""
        optimizer, reading = moment.optimizer, moment.reading
        norm = values.gradient_norm
        gradients = None
        if norm is not None and not math.isfinite(norm):
            gradients = self.bad_gradients(optimizer, reading, values)
        tripped = gradients is not None or (values.loss is not None and not math.isfinite(values.loss))
        due = self.due(reading.step, tripped=tripped, late=late)
        parameters = self.known(optimizer).check(optimizer) if due else None
        if due and parameters is None and not late:
            self.since = None
        file, line = reading.place or (None, None)
        return Observation(
            rank=self.environment.rank,
            step=reading.step,
            loss=values.loss,
            gradient_norm=norm,
            gradients=gradients,
            scaled=reading.scaled,
            checked=due,
            parameters=parameters,
            local=blame.own(reading, self.environment.ranks) if gradients else None,
            late=late,
            norms=tuple(self.norms),
            losses=tuple(self.losses),
            records=records,
            since=self.since,
            file=file,
            line=line,
        )

    def bad_gradients(self, optimizer: Optimizer, reading: Reading, values: Values) -> NonFinite | None:
        """Look closer: None where a norm only overflowed. What was said already isn't counted again."""
        if nonfinite_gradient.KIND in self.silent:
            bad = [norm for norm in values.norms if not math.isfinite(norm)]
            return NonFinite(name=None, tensors=len(bad), of=len(values.norms))
        found = blame.confirmed(reading, values)
        if not found:
            return None
        return blame.describe(reading, found, len(values.norms), self.known(optimizer).names(optimizer))

    def due(self, step: int, *, tripped: bool, late: bool) -> bool:
        """
        Whether parameters are checked: every few steps, and when something else is bad.

        Not again where they are known to be bad, and not late, after the update, unless it
        is known which update spoiled them.
        """
        settings = self.environment.probes.probes.get(nonfinite_parameter.KIND)
        if settings is None or nonfinite_parameter.KIND in self.silent:
            return False
        if late:
            return tripped and self.since is not None
        return tripped or self.count == 1 or step % settings["every"] == 0

    def known(self, optimizer: Optimizer) -> Parameters:
        """Return what is known of the optimizer's parameters, found out at the first need."""
        if self.parameters is None:
            self.parameters = Parameters(optimizer)
        return self.parameters

    def findings(self, seen: Observation) -> list[Finding]:
        """Ask the probes. What is only observed is said when it begins, and not again while it lasts."""
        bad, asked = [], set()
        for kind, settings in self.environment.probes.probes.items():
            if self.asks(kind, seen):
                asked.add(kind)
                verdict = ALL[kind].probe(seen, settings)
                self.unknown.pop(kind, None)
                if verdict.status == "unknown":
                    self.unknown[kind] = verdict.reason
                elif verdict.finding is not None:
                    bad.append(verdict.finding)
        return self.new(bad, asked, healthy=not bad and not seen.updated)

    def asks(self, kind: str, seen: Observation) -> bool:
        """Whether a probe has something to judge in this observation."""
        if kind not in ALL:  # it is found by comparing ranks
            return False
        needs = ALL[kind].NEEDS
        if needs is not None:
            return seen.record(needs) is not None
        return not seen.updated and (seen.checked or kind != nonfinite_parameter.KIND)

    def remember(self, seen: Observation) -> None:
        """Put a step into the history."""
        if seen.gradient_norm is not None and math.isfinite(seen.gradient_norm):
            self.norms.append(seen.gradient_norm)
        if seen.loss is not None and math.isfinite(seen.loss):
            self.losses.append(seen.loss)

    def new(self, bad: list[Finding], asked: set[str], *, healthy: bool = False) -> list[Finding]:
        """Return the findings that were not said already; those that pause are said at every step."""
        said = self.silent
        observed = {finding.kind: finding.severity for finding in bad if self.action(finding) == "Observe"}
        resting = {kind: severity for kind, severity in said.items() if kind not in asked}
        if healthy:
            resting.pop(nonfinite_parameter.KIND, None)  # that one is not asked while it is silent
        self.silent = resting | observed
        return [finding for finding in bad if finding.kind not in observed or worse(finding, said)]

    def action(self, finding: Finding) -> policy.Action:
        """Return what the policy asks for."""
        return policy.match(self.environment.rules, finding).action

    def blind(self, why: str) -> None:
        """Say of all probes why they can't tell."""
        self.unknown |= dict.fromkeys(self.environment.probes.probes, why)

    def applied(self, step: int) -> None:
        """Remember that a bad update was let through."""
        if self.since is None:
            self.since = step


def strongest(actions: Iterable[policy.Action]) -> policy.Action:
    """Return the strongest thing that is asked for."""
    return max(actions, key=policy.ACTIONS.index, default="Observe")


def unknowns(judges: Mapping[Optimizer, Judge]) -> dict[str, str]:
    """Return why probes can't tell, over all optimizers."""
    return {kind: why for judge in list(judges.values()) for kind, why in judge.unknown.items()}


def worse(finding: Finding, said: Mapping[str, Severity]) -> bool:
    """Whether a finding is of a kind that was not said, or only of a milder severity."""
    before = said.get(finding.kind)
    return before is None or policy.SEVERITIES.index(finding.severity) > policy.SEVERITIES.index(before)
