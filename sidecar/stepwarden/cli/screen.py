"""What a person reads in the terminal: pure."""

from collections.abc import Iterable, Sequence

from stepwarden.attempt import Moment, moment, until
from stepwarden.cli.course import Course
from stepwarden.failure import is_crash
from stepwarden.policy import Decision, Rule, match
from stepwarden.wire import Finding, RankReport

Key = tuple[str, Moment, int | None]

ASK = "[s] go on without this update   [a] go on with it   [q] stop: type one of them and Enter"
ASK_HOLD = "[s] go on   [q] stop: type one of them and Enter"
STACK = 12  # lines of a stack
FEW = 4  # ranks that are shown one by one

DONE = {
    "Observe": "it is only observed (--on-anomaly hold would hold every rank before that update)",
    "Skip": "that update was left out on every rank, and the training goes on",
    "Restart": "the run is started anew before that update, if it may be",
    "Fail": "the run is stopped before that update",
}
WARNED = "the training goes on: --on-anomaly is about critical findings; a rule of spec.onFinding may hold it"
HANGS = "it may go on by itself; Ctrl-C ends the run, and all ranks' stacks are in the report"
THEN = {
    "Skip": "this update is left out and the training goes on",
    "Observe": "it is applied and the training goes on",
    "Suspend": "the run is stopped (there are no pods to suspend on one machine)",
    "Fail": "the run is stopped",
    "Restart": "the run is started anew, if it may be",
}


def key(finding: Finding) -> Key:
    """Return what two words about the same finding share: ranks fail each in its own way."""
    return finding.kind, moment(finding), finding.rank if finding.kind == "RankFailed" else None


def block(finding: Finding, rules: Sequence[Rule], *, interactive: bool) -> list[str]:
    """Return the lines of one finding."""
    began = began_on(finding)
    place = where(finding)
    head = [f"finding: {finding.kind} ({finding.severity}) at step {finding.step}, {began}"]
    return [
        *head,
        *place,
        f"  {finding.message}",
        *stack(finding),
        f"  {now(finding, match(rules, finding), interactive=interactive)}",
    ]


def stack(finding: Finding) -> list[str]:
    """Return the end of the stack that a rank left which a signal killed: it could print none itself."""
    left = finding.evidence.get("traceback") if finding.evidence.get("signal") else None
    lines = str(left).strip().splitlines() if left else []
    more = [f"  ... {len(lines) - STACK} more lines in the report"] if len(lines) > STACK else []
    return [*(f"  {line}" for line in lines[:STACK]), *more]


def consequences(findings: Sequence[Finding]) -> str:
    """Return the one line on failures that followed from another rank's."""
    ranks = tuple(sorted({each.rank for each in findings if each.rank is not None}))
    because = findings[0].evidence.get("because")
    who = "another rank" if because is None else f"rank {because}"
    return f"{names(ranks)} ended because of {who}"


def began_on(finding: Finding) -> str:
    """Say which rank is to blame."""
    seen = f", seen on {names(finding.ranks)}" if len(finding.ranks) > 1 else ""
    return f"on {names(finding.ranks)}" if finding.rank is None else f"began on rank {finding.rank}{seen}"


def names(ranks: Sequence[int]) -> str:
    """Name ranks: `rank 1`, `ranks 0 and 1`, `ranks 0, 1, 2 and 5 more`."""
    if not ranks:
        return "no single rank"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > FEW:
        return f"ranks {', '.join(map(str, ranks[: FEW - 1]))} and {len(ranks) - FEW + 1} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def where(finding: Finding) -> list[str]:
    """Return the line that says where in the model and in the source it is."""
    parts = [
        f"parameter {finding.parameter}" if finding.parameter else "",
        f"module {finding.module}" if finding.module else "",
        f"operator {finding.op}" if finding.op else "",
        f"{finding.file}:{finding.line}" if finding.file else "",
    ]
    said = ", ".join(part for part in parts if part)
    return [f"  {said}"] if said else []


def now(finding: Finding, rule: Rule, *, interactive: bool) -> str:
    """Say what is done about it, and what a person can do now."""
    if is_crash(finding):
        raised = finding.evidence.get("traceback") and not finding.evidence.get("signal")
        where = "; the traceback is above, and in the report" if raised else ""
        return f"the run ends by itself{where}"
    if finding.kind == "RankHung" and rule.action == "Observe":
        return HANGS
    if finding.severity != "critical" and rule.action == "Observe":
        return WARNED
    if rule.action not in {"Hold", "Suspend"}:
        return DONE.get(rule.action, DONE["Observe"])
    if rule.action == "Suspend":
        return THEN["Suspend"]
    held = "every rank is held before that update: the parameters are those of the step before"
    return f"{held}; {deadline(rule, interactive=interactive)}"


def deadline(rule: Rule, *, interactive: bool) -> str:
    """Say what ends a hold."""
    if rule.timeout is None or rule.then is None:
        return "it waits for you"
    then = f"after {duration(rule.timeout)} {THEN.get(rule.then, 'it goes on waiting')}"
    return f"choose, or {then}" if interactive else f"{then} (there is no terminal to ask)"


def held_at_start(timeout: float | None) -> list[str]:
    """Return the lines on a hold that was asked for from the start; None: a person ends it."""
    said = "spec.hold is true: the ranks are held at their first step"
    if timeout is None:
        return [said, ASK_HOLD]
    return [f"{said}, and go on after {duration(timeout)} (there is no terminal to ask)"]


def duration(seconds: float) -> str:
    """Write a duration as it is written in a manifest: 90s, 10m, 2h."""
    whole = round(seconds)
    for unit, size in (("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{seconds:g}s"


def progress(ranks: Iterable[RankReport]) -> str | None:
    """Return a line on where the ranks are; None before the first step, and when all have ended."""
    known = [rank for rank in sorted(ranks, key=lambda each: each.rank) if rank.step >= 0]
    if not any(rank.state in {"running", "held"} for rank in known):
        return None
    if len(known) <= FEW:
        return f"step {max(rank.step for rank in known)}: " + " | ".join(map(one, known))
    return summary(known)


def one(rank: RankReport) -> str:
    """Return a rank's part of the line."""
    if rank.state != "running":
        return f"rank {rank.rank} {rank.state} at {rank.step}"
    return f"rank {rank.rank} loss {number(rank.loss)}, {speed(rank.steps_per_second)} steps/s"


def summary(known: Sequence[RankReport]) -> str:
    """Return the line for many ranks: the slowest and the fastest, the highest and the lowest loss."""
    steps = [rank.step for rank in known]
    losses = [rank.loss for rank in known if rank.loss is not None]
    speeds = [rank.steps_per_second for rank in known if rank.steps_per_second is not None]
    states = {rank.state for rank in known} - {"running"}
    parts = [
        f"steps {min(steps)} to {max(steps)}: {len(known)} ranks",
        f"loss {number(min(losses, default=None))} to {number(max(losses, default=None))}",
        f"{speed(min(speeds, default=None))} steps/s",
        *(f"{sum(rank.state == state for rank in known)} {state}" for state in sorted(states)),
    ]
    return " | ".join(parts)


def number(value: float | None) -> str:
    """Write a loss."""
    return "unknown" if value is None else f"{value:.4f}"


def speed(value: float | None) -> str:
    """Write steps per second."""
    return "?" if value is None else f"{value:.1f}"


def restarted(decision: Decision, number: int, most: int, wait: float) -> str:
    """Say that the run is started anew."""
    first = decision.findings[0]
    return f"restart {number} of {most} in {duration(wait)}: {first.kind}: {first.message.splitlines()[0]}"


def decided(before: Course, course: Course) -> str:
    """Say what was just decided."""
    by = "as you chose" if course.by_person else "as the policy says"
    if course.stopped:
        return f"the run is stopped, {by}"
    if until(course.instruction) == until(before.instruction):
        return "the hold is over: the training goes on"
    what = "left out" if course.instruction.update == "skip" else "applied"
    return f"the update of step {course.instruction.acknowledged} is {what}, {by}: the training goes on"
