"""Which rules a local run goes by: pure. The policy itself is stepwarden.policy, as on a cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from stepwarden.policy import Rule

Mode = Literal["observe", "skip", "hold", "restart", "stop"]

HOLD_TIMEOUT = 600.0  # seconds
# A rank that failed ends the run by itself, with its own exit code.
ENDS_ITSELF = Rule(kinds=("RankFailed",), action="Observe")
# A rank that hangs reaches no boundary at which it could be held, or its update left out.
GOES_ON = Rule(kinds=("RankHung",), action="Observe")
OBSERVE = (Rule(kinds=("*",), severity="info", action="Observe"),)


RESTARTS = Rule(kinds=("RankFailed",), severity="critical", action="Restart")


def of_mode(mode: Mode, hold_timeout: float | None, *, restarts: bool = False) -> tuple[Rule, ...]:
    """Return the rules that `--on-anomaly` stands for; `restarts`: a rank that failed starts the run anew."""
    crash = RESTARTS if restarts or mode == "restart" else ENDS_ITSELF
    limit = HOLD_TIMEOUT if hold_timeout is None else hold_timeout
    match mode:
        case "observe":
            return (crash, *OBSERVE) if restarts else OBSERVE
        case "restart":
            chosen = Rule(severity="critical", action="Restart")
        case "skip":
            chosen = Rule(severity="critical", action="Skip")
        case "hold":
            chosen = Rule(severity="critical", action="Hold", timeout=limit, then="Fail")
        case "stop":
            chosen = Rule(severity="critical", action="Fail")
    return (crash, GOES_ON, chosen) if mode in {"skip", "hold"} else (crash, chosen)


def default_mode(*, interactive: bool) -> Mode:
    """Return what a script gets that no mode was given for: one that can't be answered never waits."""
    return "hold" if interactive else "observe"


def of_manifest(rules: Sequence[Rule], hold_timeout: float | None, *, interactive: bool) -> tuple[Rule, ...]:
    """Return a manifest's rules here: `--hold-timeout` goes before theirs; nothing waits for nobody."""
    return tuple(local(rule, hold_timeout, interactive=interactive) for rule in rules)


def local(rule: Rule, hold_timeout: float | None, *, interactive: bool) -> Rule:
    """Return one rule as it holds here."""
    if rule.action != "Hold":
        return rule
    if hold_timeout is not None:
        return replace(rule, timeout=hold_timeout, then=rule.then or "Fail")
    if not interactive and (rule.timeout is None or rule.then in {None, "Hold"}):
        return replace(rule, timeout=rule.timeout or HOLD_TIMEOUT, then="Fail")
    return rule


def endless(rules: Iterable[Rule]) -> bool:
    """Whether some hold waits for a person, however long that takes."""
    return any(rule.action == "Hold" and (rule.timeout is None or rule.then is None) for rule in rules)
