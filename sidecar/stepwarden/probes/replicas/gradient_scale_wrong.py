"""GradientScaleWrong, as far as ranks show it: loss scales that differ, a reduction that is no mean."""

import math
from collections.abc import Sequence

from stepwarden.probes.replicas.together import Together, bad, camps, numbers, standing_out, unknown, values
from stepwarden.replica import Replica
from stepwarden.wire import Verdict

KIND = "GradientScaleWrong"

NEAR = 0.01  # of the factor
CANCELLED = 0.02  # of the largest part: a mean below is mostly rounding


def judge(seen: Together) -> Verdict:
    """
    Say whether the replicas' loss scales are one, and their gradients the mean of their own.

    On an accelerator a rank may hear of its new scale a step late: it takes two steps with the same scales.
    """
    if reason := seen.incomparable():
        return reason
    lasting = [one for one, two in seen.pairs() if one.scale is not None and one.scale == two.scale]
    if seen.known and scales_differ(lasting):
        return differing(lasting)
    return averaged(seen)


def differing(records: Sequence[Replica]) -> Verdict:
    """Make the finding for scales that differ."""
    found = camps(records, lambda one, other: one.scale != other.scale)
    message = (
        f"the replicas' loss scales differ ({values(records, lambda record: record.scale)}): they average "
        "unlike quantities, and each unscales the mean by another factor; load the GradScaler's state on "
        "every rank"
    )
    scales = numbers(records, lambda record: record.scale)
    ranks = standing_out(found)
    return bad(KIND, "DifferentScales", message, records=records, ranks=ranks, evidence={"scales": scales})


def scales_differ(records: Sequence[Replica]) -> bool:
    """Whether two ranks use different loss scales."""
    return len({record.scale for record in records if record.scale is not None}) > 1


def averaged(seen: Together) -> Verdict:
    """Judge by what factor the gradients that are used differ from the mean of the ranks' own."""
    earlier, later = factor(seen.before), factor(seen.records)
    if later is None:
        return unknown("NotMeasured", "the reduction was not measured on every rank in this step")
    if abs(later - 1) <= NEAR:
        return Verdict("ok", "Mean", f"the gradients are the mean of the ranks' own (factor {later:.4g})")
    if earlier is None:
        return unknown("OnceOnly", f"the gradients are {later:.4g} times the mean, in one step so far")
    ranks = len(seen.records)
    for wrong, what in ((float(ranks), "summed over the ranks"), (1 / ranks, "averaged twice")):
        if near(earlier, wrong) and near(later, wrong):
            return off(seen, later, f"{what} instead of averaged once")
    if min(earlier, later) > 1 + NEAR and near(earlier, later):
        return off(seen, later, "multiplied after the reduction")
    return unknown("Clipped", f"the gradients are {later:.4g} times the mean: clipping may do that")


def off(seen: Together, by: float, how: str) -> Verdict:
    """Make the finding for gradients that are off by a factor."""
    message = (
        f"the gradients that the optimizer uses are {by:.4g} times the mean of the {len(seen.records)} "
        f"replicas' own: they are {how}, which acts as a learning rate {by:.4g} times as large"
    )
    ranks = [record.rank for record in seen.records]
    records = seen.before or seen.records
    evidence = {"factor": by}
    return bad(
        KIND, "WrongFactor", message, records=records, ranks=ranks, severity="warning", evidence=evidence
    )


def near(one: float, other: float) -> bool:
    """Whether two factors are the same within what low precision leaves."""
    return abs(one - other) <= NEAR * abs(other)


def factor(records: Sequence[Replica]) -> float | None:
    """Return used gradients over the mean of the ranks' own, None where it can't be told."""
    own = [record.own for record in records if record.own is not None]
    used = [record.used for record in records if record.used is not None]
    complete = len(records) > 1 and len(own) == len(used) == len(records) == records[0].size
    if not complete or not all(map(math.isfinite, own + used)):
        return None
    mean = sum(own) / len(own)
    same = max(used) - min(used) <= NEAR * max(map(abs, used))
    if not same or abs(mean) <= CANCELLED * max(map(abs, own)):
        return None
    return used[0] / mean
