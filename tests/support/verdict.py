"""What a run's findings are worth: found in time and at its place, and nothing else said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casebook import Case

ALARMS = {"warning", "critical"}
CANDIDATES = 5  # a place counts if one of the first findings of an accepted kind names it

Finding = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """
    What was said about a case, all of it empty for a perfect answer.

    `late` is in steps, `misplaced` names the fields that are wrong, `alarms` are kinds that a healthy script
    was accused of, `wrong` are critical ones that are neither the fault's nor a consequence of it.
    """

    caught: bool = True
    late: int = 0
    misplaced: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


def judge(case: Case, findings: Iterable[Finding]) -> Verdict:
    """Judge the findings of a run of a case."""
    said = [finding for finding in findings if finding["severity"] in ALARMS]
    if case.silent:
        return Verdict(alarms=kinds(said))
    accepted = [finding for finding in said if finding["kind"] in case.expect]
    first = 0 if case.early_ok else case.by_step - case.early_by
    in_time = [finding for finding in accepted if finding["step"] >= first]
    wrong = kinds(
        finding
        for finding in said
        if finding["severity"] == "critical" and finding["kind"] not in {*case.expect, *case.also}
    )
    early = kinds(finding for finding in accepted if finding["step"] < first)
    if not in_time:
        return Verdict(caught=False, wrong=wrong, early=early)
    return Verdict(
        late=max(0, min(finding["step"] for finding in in_time) - case.by_step),
        misplaced=min((misplaced(case, finding) for finding in in_time[:CANDIDATES]), key=len),
        wrong=wrong,
        early=early,
    )


def kinds(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the kinds of some findings, each once."""
    return tuple(dict.fromkeys(finding["kind"] for finding in findings))


def misplaced(case: Case, finding: Finding) -> tuple[str, ...]:
    """Return which fields of a finding do not say what they should."""
    wrong = [place for place, accepted in case.where.items() if finding[place] not in accepted]
    if "line" in case.where and "line" not in wrong and Path(str(finding["file"])).name != case.file.name:
        wrong.append("line")
    return tuple(wrong)


def difference(plain: Sequence[str], watched: Sequence[str], *, died: bool) -> str:
    """Say how the losses printed differ; a job that dies may lose its last line either way."""
    for mine, theirs in zip(plain, watched, strict=False):
        if mine != theirs:
            return f"{mine!r} became {theirs!r}"
    if abs(len(plain) - len(watched)) > died:
        return f"{len(watched)} losses are printed, plainly {len(plain)}"
    return ""
