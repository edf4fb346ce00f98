"""
What becomes of a run, given what was found and what a person answered: pure.

The same policy decides as on a cluster; what differs is that a Suspend has no pods to delete
here and ends the run. A rank that failed is left to torchrun, which ends the run by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from stepwarden.attempt import Moment, until
from stepwarden.policy import Action, Decision, Rule, decide, overdue
from stepwarden.wire import Finding, Instruction, JobReport, Update

Answer = Literal["skip", "apply", "stop", "restart"]

THEN: dict[Action, Answer] = {
    "Skip": "skip",
    "Observe": "apply",
    "Restart": "restart",
    "Suspend": "stop",
    "Fail": "stop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What was decided so far. `pause` is open from `since` on; `answered` says how the last one ended."""

    instruction: Instruction = field(default_factory=Instruction)
    pause: Decision | None = None
    since: float = 0.0
    answered: Answer | None = None
    by_person: bool = False

    @property
    def stopped(self) -> bool:
        """Whether the run is to end for good."""
        return self.answered == "stop"

    @property
    def ended(self) -> bool:
        """Whether these ranks are to end: for good, or to be started anew."""
        return self.answered in {"stop", "restart"}


def turn(
    course: Course, rules: Sequence[Rule], findings: Iterable[Finding], answer: Answer | None, now: float
) -> Course:
    """Return the course after a look at the findings, and at a person's answer, if there is one."""
    if course.ended:
        return course
    if course.instruction.hold and answer in {"skip", "apply"}:
        return replace(course, instruction=replace(course.instruction, hold=False))
    if answer == "stop":
        return replace(course, answered="stop", by_person=True)
    judged = [finding for finding in findings if finding.kind != "RankFailed"]
    decision = decide(rules, judged, until(course.instruction))
    if decision is None:
        return replace(course, pause=None)
    since = course.since if course.pause else now
    chosen = answer or THEN.get(overdue(decision, since, now))
    if chosen is None:
        return replace(course, pause=decision, since=since)
    paused = replace(course, pause=decision, since=since, answered=chosen, by_person=answer is not None)
    return released(paused, decision.until, chosen) if chosen in {"skip", "apply"} else paused


def over(report: JobReport) -> bool:
    """Whether every rank has ended, and it is known of each that failed how."""
    told = {finding.rank for finding in report.findings if finding.kind == "RankFailed"}
    return all(
        rank.state == "ended" or (rank.state == "failed" and rank.rank in told) for rank in report.ranks
    )


def released(course: Course, last: Moment, chosen: Answer) -> Course:
    """Return the course after the findings up to a moment were dealt with."""
    update: Update = "skip" if chosen == "skip" else "apply"
    attempt, step = last
    instruction = replace(course.instruction, attempt=attempt, acknowledged=step, update=update)
    return replace(course, instruction=instruction, pause=None)


def left(course: Course, now: float) -> float | None:
    """Return how many seconds a person still has to answer; None: no end."""
    rule = course.pause.rule if course.pause else None
    if rule is None or rule.timeout is None or rule.then is None:
        return None
    return max(0.0, course.since + rule.timeout - now)
