"""
Which steps all ranks have said, where ranks wait for that: pure.

A rank says its findings before its step, so once all live ranks have said a step, nothing that one of
them found in it is missing.
"""

from collections.abc import Sequence
from dataclasses import replace

from stepwarden.wire import Finding, Orders, RankReport

LIVE = frozenset({"running", "held"})


def agree(orders: Orders, ranks: Sequence[RankReport], unsound: int, expected: int | None) -> Orders:
    """Put into the orders how far all ranks are; as they are where no rank waits for that."""
    live = [rank for rank in ranks if rank.state in LIVE]
    if not any(rank.agree for rank in live):
        return orders
    all_known = expected is None or len(ranks) >= expected
    agreed = min(rank.step for rank in live) if all_known else -1
    return replace(orders, agreed=agreed, unsound=unsound)


def spoils(finding: Finding) -> bool:
    """Whether a finding makes its step one that no rank may apply."""
    return finding.severity == "critical" and finding.kind.startswith("NonFinite")
