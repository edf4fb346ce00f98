"""From the saved calls of a bad step to its findings, richer: which call, which operator, or why not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepwarden.agent.looks import names
from stepwarden.agent.replay import losscode, story
from stepwarden.agent.replay.examining import Examined, examine
from stepwarden.agent.replay.run import CannotReplay
from stepwarden.agent.replay.story import Story
from stepwarden.probes import birth as births
from stepwarden.probes import nonfinite_activation, nonfinite_gradient, nonfinite_loss
from stepwarden.probes.nonfinite_activation import Activation
from stepwarden.probes.observation import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwarden.agent.replay.lossside import LossSide
    from stepwarden.agent.replay.shelf import Shelf
    from stepwarden.agent.replay.snapshot import Snapshot
    from stepwarden.agent.watch import Moment
    from stepwarden.wire import Finding

EXPLAINED = frozenset({nonfinite_gradient.KIND, nonfinite_loss.KIND})


class Explaining:
    """The explanation of one step: found at most once, however many findings and optimizers it has."""

    def __init__(self, calls: Sequence[Snapshot] | None, loss: LossSide, lost: int, shelf: Shelf) -> None:
        """
        Take what was kept; `lost` calls were not. `shelf` is where bundles go.

        Without `calls` nothing is run again: replays have taken their share of the run's time.
        """
        self.shelf, self.spent = shelf, calls is None
        self.calls, self.loss, self.lost = [call for call in calls or () if call.current], loss, lost
        self.story: Story | None = None
        self.culprit: Snapshot | None = None
        self.seconds = 0.0
        self.saved: Mapping[str, str] = {}

    def of(self, moment: Moment, findings: Sequence[Finding]) -> list[Finding]:
        """Make findings richer, and add that of the activation that was born bad."""
        mine = [finding for finding in findings if finding.kind in EXPLAINED]
        if self.story is None:
            began = time.perf_counter()
            self.name(moment)
            self.story = self.told(moment.reading.place, mine)
            self.seconds = time.perf_counter() - began
            if self.culprit is not None and self.story.status == "ok":
                self.saved = self.shelf.put(mine, self.culprit, self.story)
        made = [
            story.richer(finding, self.story, self.seconds, self.saved) if finding in mine else finding
            for finding in findings
        ]
        if self.story.forward:
            first = next(index for index, finding in enumerate(findings) if finding in mine)
            made[first:first] = activation(made[first], self.story)
        return made

    def name(self, moment: Moment) -> None:
        """Find out what the called modules are called in the roots: a program may call parts of its model."""
        called = {
            id(module): names.clean(name) for root in moment.roots() for name, module in root.named_modules()
        }
        for call in self.calls:
            call.prefix = called.get(id(call.module), "")

    def told(self, place: tuple[str, int] | None, mine: Sequence[Finding]) -> Story:
        """Tell what is to blame; `place` is the call of backward. Never raises: an error is the reason."""
        if self.spent:
            return Story(
                status="unknown", reason="replays of earlier steps have taken their share of the time"
            )
        if any(finding.evidence.get("late") for finding in mine):
            return Story(status="unknown", reason="it was read after the update: the step is gone")
        if all(finding.evidence.get("local") is False for finding in mine):
            return Story(
                status="unknown", reason="this rank's own gradients were finite before the reduction"
            )
        try:
            return self.found(place)
        except Exception as error:  # noqa: BLE001 - a replay that fails says so, and the finding is made all the same
            return Story(status="unknown", reason=raised(error))

    def of_failure(self, place: tuple[str, int] | None, finding: Finding) -> Finding:
        """Make the finding of an exception richer: torch's anomaly mode raised it within backward."""
        began = time.perf_counter()
        told = self.told(place, [finding])
        return story.of_failure(finding, told, time.perf_counter() - began)

    def found(self, place: tuple[str, int] | None) -> Story:
        """Run the calls again, the oldest first, until one is to blame."""
        reasons: list[str] = []
        outside: Story | None = None
        incoming: list[Examined] = []
        for call in self.calls:
            seen = self.examined(call, reasons)
            if seen is None:
                continue
            if not seen.incoming and seen.outputs:
                incoming.append(seen)
            told = self.of_call(call, seen)
            if told is not None and told.status == "ok" and told.op is not None:
                self.culprit = call
                return told
            if told is not None and (outside is None or outside.status != "ok"):
                outside, self.culprit = told, call
        if outside is not None:
            return outside
        if incoming:
            return beside(losscode.story(self.loss, place, self.calls[-1].place), incoming)
        return Story(status="unknown", reason=self.why(reasons))

    @staticmethod
    def examined(call: Snapshot, reasons: list[str]) -> Examined | None:
        """Run one call again; what it lacks, or why it can't be run, is appended to the reasons."""
        try:
            seen = examine(call)
        except CannotReplay as error:
            reasons.append(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - the model is the user's, and another call may do
            reasons.append(raised(error))
            return None
        if seen.partial:
            reasons.append("a gradient of its output was too large to keep")
        if seen.why is not None:
            reasons.append(f"the recording is incomplete: {seen.why}")
        return seen

    @staticmethod
    def of_call(call: Snapshot, seen: Examined) -> Story | None:
        """Tell what one call is to blame for, if it is."""
        if seen.birth is None:
            return None
        return story.of_birth(seen.birth, seen.steps, type(call.module).__name__, call.prefix)

    def why(self, reasons: Sequence[str]) -> str:
        """Say why nothing was found."""
        if reasons:
            return reasons[0]
        if self.lost:
            return f"{self.lost} earlier calls of the step were not kept, and the kept ones are finite"
        if not self.calls:
            return "no module call of this step received a gradient: nothing to run again"
        return (
            "run again all is finite: the gradients were spoiled behind backward (by clipping, a hook, a "
            "reduction), or it depends on more than batch, weights and random state"
        )


def beside(told: Story, seen: Sequence[Examined]) -> Story:
    """
    Tell of an operator of a model that the loss took from elsewhere than its output, as an auxiliary loss.

    Only where the one operator that the loss graph accuses is the only such one that the model ran badly.
    """
    for one in seen:
        found = [birth for birth in births.all_born(one.steps) if one.steps[birth.op or 0].name == told.op]
        if len(found) == 1:
            return story.of_birth(found[0], one.steps, "", one.prefix)
    return told


def raised(error: Exception) -> str:
    """Say what a replay raised."""
    text = " ".join(str(error).split())
    return f"the replay raised {type(error).__name__}: {text:.200}"


def activation(finding: Finding, told: Story) -> list[Finding]:
    """Make the finding of the activation, just before the one that it explains."""
    born = Activation(
        op=told.op,
        module=told.module,
        file=told.file,
        line=told.line,
        label=told.label,
        largest_in=told.largest_in,
        largest_out=told.largest_out,
        severity=finding.severity,
    )
    evidence = finding.evidence
    seen = Observation(
        rank=finding.rank or 0,
        step=finding.step,
        records=(born,),
        local=evidence.get("local"),
        norms=tuple(evidence.get("gradient_norms_before", ())),
    )
    verdict = nonfinite_activation.probe(seen, nonfinite_activation.DEFAULTS)
    return [] if verdict.finding is None else [verdict.finding]
