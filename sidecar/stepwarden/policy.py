"""
From findings to what becomes of the job: pure, and the same code in agent, operator and laptop.

A policy is a list of rules; the first that matches a finding decides. A finding of severity
`info` never pauses a job. Reads no clock: times are arguments, in seconds since the epoch.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from stepwarden.attempt import NEVER, Moment, moment
from stepwarden.wire import Finding, Severity

Action = Literal["Observe", "Skip", "Hold", "Restart", "Suspend", "Fail"]

KINDS = (
    "NonFiniteLoss",
    "NonFiniteGradient",
    "NonFiniteActivation",
    "NonFiniteParameter",
    "ExplodingGradient",
    "VanishingGradient",
    "LossSpike",
    "GradientTruncated",
    "ParameterNotUpdated",
    "FrozenParameterChanged",
    "ParameterUntied",
    "ParameterChangedOutsideStep",
    "GradientAccumulatedTwice",
    "GradientNotSynchronized",
    "ReplicasDiverged",
    "GradientScaleWrong",
    "ScalerStarved",
    "UpdateWrongSize",
    "RecomputeMismatch",
    "ModalityImbalance",
    "StaleCast",
    "DataRepeated",
    "RandomStateUnset",
    "RankFailed",
    "RankHung",
    "RankStraggling",
)
ACTIONS: tuple[Action, ...] = get_args(Action)  # weakest first
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # mildest first
PAUSING = frozenset({"Hold", "Restart", "Suspend", "Fail"})  # the rank waits before the update
FAILURE_GRACE = 2.0  # seconds that the other ranks have to end once one failed, if nobody says otherwise
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


class PolicyError(ValueError):
    """A policy that can't be meant, in a sentence that names the value and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    One entry of `spec.onFinding`.

    `severity` is the mildest that matches. After `timeout` seconds of a hold, `then` is
    done instead; without a timeout the hold waits for a person. `times` bounds the restarts
    that this rule asks for; what bounds those of all rules is the job's own.
    """

    kinds: tuple[str, ...] = ("*",)
    severity: Severity = "warning"
    action: Action = "Observe"
    timeout: float | None = None
    then: Action | None = None
    times: int | None = None

    def matches(self, finding: Finding) -> bool:
        """Whether this rule speaks of a finding."""
        severe = SEVERITIES.index(finding.severity) >= SEVERITIES.index(self.severity)
        return severe and ("*" in self.kinds or finding.kind in self.kinds)


OBSERVE = Rule(severity="info")
DEFAULT_RULES = (
    Rule(kinds=("RankFailed",), severity="critical", action="Fail"),
    Rule(kinds=("RankHung", "RankStraggling"), action="Observe"),
    Rule(kinds=("*",), severity="critical", action="Hold", timeout=2 * 3600.0, then="Suspend"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the open findings ask for, by which rule, and the last moment that they concern."""

    action: Action
    rule: Rule
    findings: tuple[Finding, ...]

    @property
    def until(self) -> Moment:
        """The attempt and the step that an acknowledgement must reach to end this."""
        return max(map(moment, self.findings))


def restarting(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the default rules for a job that may restart: a rank that failed starts the whole job anew."""
    return tuple(
        replace(rule, action="Restart") if rule.action == "Fail" and "RankFailed" in rule.kinds else rule
        for rule in rules
    )


def match(rules: Iterable[Rule], finding: Finding) -> Rule:
    """Return the first rule that matches, or one that only observes."""
    if finding.severity == "info":
        return OBSERVE
    return next((rule for rule in rules if rule.matches(finding)), OBSERVE)


def decide(
    rules: Sequence[Rule], findings: Iterable[Finding], acknowledged: Moment = NEVER
) -> Decision | None:
    """Return the strongest thing that findings after the moment `acknowledged` ask for; None: go on."""
    open_ones = [(match(rules, finding), finding) for finding in findings if moment(finding) > acknowledged]
    pausing = [(rule, finding) for rule, finding in open_ones if rule.action in PAUSING]
    if not pausing:
        return None
    rule = max((rule for rule, _ in pausing), key=lambda rule: ACTIONS.index(rule.action))
    return Decision(action=rule.action, rule=rule, findings=tuple(finding for _, finding in pausing))


def overdue(decision: Decision, since: float, now: float) -> Action:
    """Return what a pause that has lasted from `since` to `now` asks for: its `then`, once overdue."""
    rule = decision.rule
    if rule.timeout is None or rule.then is None or now < since + rule.timeout:
        return decision.action
    return rule.then


def seconds(duration: str) -> float:
    """Read a duration as Go and Kubernetes write it (`90s`, `2h`, `1h30m`). Raises `PolicyError`."""
    found = DURATION.fullmatch(duration)
    if not duration or not found:
        message = f"{duration!r} is not a duration: write hours, minutes and seconds, as in 2h, 1h30m or 90s"
        raise PolicyError(message)
    hours, minutes, rest = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + rest


def read_rules(raw: Sequence[Mapping[str, Any]] | None) -> tuple[Rule, ...]:
    """
    Read `spec.onFinding`; None or empty gives the default rules.

    Raises `PolicyError`.
    """
    return tuple(map(read_rule, raw)) if raw else DEFAULT_RULES


def read_rule(raw: Mapping[str, Any]) -> Rule:
    """Read one entry of `spec.onFinding`. Raises `PolicyError`."""
    for kind in raw.get("kinds", ("*",)):
        one_of(kind, ("*", *KINDS), "a kind of finding")
    for field in ("action", "then"):
        if raw.get(field) is not None:
            one_of(raw[field], ACTIONS, "an action")
    one_of(raw.get("severity", "warning"), SEVERITIES, "a severity")
    if unknown := set(raw) - {"kinds", "severity", "action", "timeout", "then", "times"}:
        message = f"unknown field {min(unknown)!r} in onFinding"
        raise PolicyError(message)
    if "action" not in raw:
        message = f"a rule of onFinding has no action: give one of {', '.join(ACTIONS)}"
        raise PolicyError(message)
    return Rule(
        times=read_times(raw),
        kinds=tuple(raw.get("kinds", ("*",))),
        severity=raw.get("severity", "warning"),
        action=raw["action"],
        timeout=seconds(raw["timeout"]) if raw.get("timeout") is not None else None,
        then=raw.get("then"),
    )


def read_times(raw: Mapping[str, Any]) -> int | None:
    """Read how often a rule may restart. Raises `PolicyError`."""
    times = raw.get("times")
    if times is None:
        return None
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        message = f"times is {times!r} in onFinding: give a whole number above 0"
        raise PolicyError(message)
    if "Restart" not in (raw.get("action"), raw.get("then")):
        message = "times in onFinding bounds restarts: give it with the action Restart"
        raise PolicyError(message)
    return times


def one_of(value: object, allowed: Sequence[str], what: str) -> None:
    """Raise `PolicyError` unless the value is an allowed one."""
    if value not in allowed:
        message = f"{value!r} is not {what}: give one of {', '.join(allowed)}"
        raise PolicyError(message)


def to_json(rules: Iterable[Rule]) -> str:
    """Write rules for `STEPWARDEN_POLICY`."""
    return json.dumps([asdict(rule) for rule in rules])


def from_json(text: str) -> tuple[Rule, ...]:
    """Read what `to_json` wrote."""
    return tuple(Rule(**{**raw, "kinds": tuple(raw["kinds"])}) for raw in json.loads(text))
