"""
How often a whole job may be started anew, how soon, and after which exit codes.

Pure, and the same in operator and laptop. JobSet users know `maxRestarts`, users of Kubeflow's
operators `restartPolicy: ExitCode`.
"""

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from stepwarden.policy import Decision, Rule, decide, seconds
from stepwarden.wire import Finding

MOST = 3
BACKOFF = 10.0  # seconds before the first restart, as the Job controller has; it doubles with each
BACKOFF_AT_MOST = 300.0  # seconds
HIGHEST_CODE = 255
FIRST_SIGNAL_CODE = 128  # a process that a signal ended has this and the signal's number as its exit code

RestartPolicy = Literal["OnFailure", "ExitCode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The bounds. Under `ExitCode`, exit codes below 128 are permanent, but for the `retryable` ones."""

    most: int = MOST
    backoff: float = BACKOFF
    policy: RestartPolicy = "OnFailure"
    retryable: frozenset[int] = frozenset()

    def wait(self, done: int) -> float:
        """Return the seconds before the next restart, after so many."""
        return min(self.backoff * 2.0 ** min(done, 32), BACKOFF_AT_MOST)


def read_restarts(spec: Mapping[str, Any]) -> Restarts:
    """Read `maxRestarts`, `restartBackoff`, `restartPolicy` and `retryableExitCodes`. Raises `ValueError`."""
    policy = spec.get("restartPolicy", "OnFailure")
    if policy not in ("OnFailure", "ExitCode"):
        message = f"spec.restartPolicy is {policy!r}: give OnFailure or ExitCode"
        raise ValueError(message)
    most, codes = spec.get("maxRestarts", MOST), spec.get("retryableExitCodes") or ()
    if not isinstance(most, int) or most < 0:
        message = f"spec.maxRestarts is {most!r}: give a whole number, 0 or more"
        raise ValueError(message)
    if wrong := [code for code in codes if not isinstance(code, int) or not 1 <= code <= HIGHEST_CODE]:
        message = f"spec.retryableExitCodes has {wrong[0]!r}: give exit codes, 1 to {HIGHEST_CODE}"
        raise ValueError(message)
    backoff = spec.get("restartBackoff")
    return Restarts(
        most=most,
        backoff=BACKOFF if backoff is None else seconds(str(backoff)),
        policy=cast("RestartPolicy", policy),
        retryable=frozenset(codes),
    )


def after_crash(rules: Sequence[Rule], findings: Iterable[Finding]) -> Decision | None:
    """
    Return what to do about a job that failed, where that is a restart.

    What was acknowledged doesn't count: a crashed job can't go on. Nor can it be held, so a rule that
    holds and restarts then does so at once.
    """
    decision = decide(rules, crashes(findings))
    if decision is None:
        return None
    rule = decision.rule
    wants = rule.action == "Restart" or (rule.action == "Hold" and rule.then == "Restart")
    return decision if wants else None


def refusal(bounds: Restarts, decision: Decision, done: int, by_rule: int) -> str:
    """Say why a restart that a rule asks for is not done, after so many of them; nothing where it is."""
    if done >= bounds.most:
        return f"restarted {done} of {bounds.most} times (maxRestarts)"
    times = decision.rule.times
    if times is not None and by_rule >= times:
        return f"restarted {by_rule} of {times} times by this rule (times)"
    if bounds.policy == "ExitCode":
        for code in map(exit_code, crashes(decision.findings)):
            if code is not None and code < FIRST_SIGNAL_CODE and code not in bounds.retryable:
                return f"exit code {code} is permanent (restartPolicy is ExitCode)"
    return ""


def crashes(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that have an exit code."""
    return [finding for finding in findings if finding.kind == "RankFailed"]


def exit_code(finding: Finding) -> int | None:
    """
    Return a failed rank's exit code as a shell gives it, 128 + N for signal N; None if it isn't known.

    torchrun ends with 1 however its rank ended, so what the agent knows of the rank counts first.
    """
    told, code = finding.evidence.get("signal"), finding.evidence.get("exit_code")
    if isinstance(told, str) and told in signal.Signals.__members__:
        return FIRST_SIGNAL_CODE + signal.Signals[told]
    if isinstance(told, int) and told > 0:
        return FIRST_SIGNAL_CODE + told
    if isinstance(code, int):
        return code if code >= 0 else FIRST_SIGNAL_CODE - code
    return 1 if finding.evidence.get("traceback") else None
