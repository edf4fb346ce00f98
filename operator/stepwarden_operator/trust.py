"""
How far the operator believes a hub: pure.

A hub runs beside other people's code. What it says may be wrong, but it must not be more than a status
can hold, nor anything that a decision trips over. Raises `ValueError` where a report can't be meant.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from stepwarden.attempt import until
from stepwarden.encoding import plain
from stepwarden.wire import Finding, JobReport, Orders, RankReport

RANKS = 16_384
FINDINGS = 2000
LARGEST = 2**53 - 1  # of whole numbers: what any JSON reader keeps exact, and int64 holds
WORD, SENTENCE, TEXT = 256, 4096, 32_768  # characters of a name, of a message, of a string of evidence
DEEPEST = 8  # lists and objects within each other
ITEMS = 256  # of one list or object
EVIDENCE = 48 * 1024  # bytes: twenty findings and the rest must fit into an object of the API server's
RUN = "run"  # in the evidence of a status' finding: the operator's own word


Item = TypeVar("Item")


def sound(report: JobReport) -> JobReport:
    """Return a report of which everything is within bounds."""
    if len(report.ranks) > RANKS or len(report.findings) > FINDINGS:
        message = f"{len(report.ranks)} ranks and {len(report.findings)} findings are too many"
        raise ValueError(message)
    return replace(
        report,
        version=report.version[:WORD],
        ranks=sound_ones(sound_rank, report.ranks),
        findings=sound_ones(sound_finding, report.findings),
        orders=sound_orders(report.orders),
    )


def sound_ones(make: Callable[[Item], Item], items: Iterable[Item]) -> tuple[Item, ...]:
    """Return those of the items that can be meant, within bounds."""
    found = []
    for item in items:
        with suppress(ValueError):
            found.append(make(item))
    return tuple(found)


def sound_rank(rank: RankReport) -> RankReport:
    """Return a rank's report within bounds."""
    within("rank", (rank.rank, rank.pod, rank.step, rank.saved, rank.attempt))
    speed = rank.steps_per_second
    return replace(
        rank,
        reason=rank.reason[:SENTENCE],
        steps_per_second=speed if speed is None or (math.isfinite(speed) and speed >= 0) else None,
    )


def sound_orders(orders: Orders) -> Orders:
    """Return orders within bounds; what ranks are told is not the operator's business."""
    within("orders", (orders.hold_at, *until(orders), orders.agreed, orders.unsound, orders.save))
    return replace(orders, told=())


def sound_finding(finding: Finding) -> Finding:
    """Return a finding within bounds."""
    within("finding", (finding.step, finding.first_step, finding.rank, finding.line, *finding.ranks))
    if len(finding.ranks) > RANKS:
        message = f"{len(finding.ranks)} ranks of a finding are too many"
        raise ValueError(message)
    evidence = {key: value for key, value in bounded(finding.evidence).items() if key != RUN}
    if len(json.dumps(plain(evidence))) > EVIDENCE:
        evidence = {"cut": f"the evidence was larger than {EVIDENCE} bytes"}
    return replace(
        finding,
        kind=finding.kind[:WORD],
        message=finding.message[:SENTENCE],
        module=short(finding.module),
        parameter=short(finding.parameter),
        op=short(finding.op),
        file=short(finding.file),
        label=short(finding.label),
        evidence=evidence,
    )


def short(word: str | None) -> str | None:
    """Cut a name, if there is one."""
    return None if word is None else word[:SENTENCE]


def within(what: str, numbers: Iterable[int | None]) -> None:
    """Raise `ValueError` where one of the numbers is too great, or below -1 (none)."""
    for number in numbers:
        if number is not None and not -1 <= number <= LARGEST:
            message = f"a {what} says {number!r:.40}, which is no number that it can have"
            raise ValueError(message)


def bounded(value: Any, depth: int = 0) -> Any:
    """Return JSON of a bounded depth, with bounded lists, objects, strings and whole numbers."""
    if isinstance(value, str):
        return value[-TEXT:]
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return str(value)[:WORD]
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {str(key)[:WORD]: bounded(item, depth + 1) for key, item in list(value.items())[:ITEMS]}
    return [bounded(item, depth + 1) for item in value[:ITEMS]]
