"""GradientNotSynchronized: data-parallel replicas are about to use different gradients."""

import math

from stepwarden.probes.naming import of_ranks
from stepwarden.probes.replicas import gradient_scale_wrong
from stepwarden.probes.replicas.together import (
    Together,
    apart,
    bad,
    camps,
    numbers,
    standing_out,
    unknown,
    values,
)
from stepwarden.replica import Replica
from stepwarden.wire import Verdict

KIND = "GradientNotSynchronized"

NORM = 1e-5  # of the norm over all gradients: more is no rounding
SKETCH = 3e-6  # of the norm of one gradient, summed over them
BLIND = (
    "no rank sees why: look for gradients that are changed after the reduction, or for a collective left out"
)


def judge(seen: Together) -> Verdict:
    """Say whether all replicas have the same gradients. Those of a healthy reduction are equal to the bit."""
    if reason := seen.incomparable():
        return reason
    records = [record for record in seen.records if record.digest]
    if len(records) < 2:  # noqa: PLR2004 - what a comparison takes
        return unknown("NoGradients", "no two ranks have a gradient")
    if not any(record.norm is not None and math.isfinite(record.norm) for record in records):
        return unknown("NotFinite", "the gradients are not finite on any rank")
    if gradient_scale_wrong.scales_differ(records):
        return unknown("ScalesDiffer", "the loss scales differ, and so must the gradients")
    found = camps(records, differ)
    if len(found) == 1:
        return Verdict("ok", "Same", f"{len(records)} ranks use the same gradients, norm {records[0].norm}")
    ranks = standing_out(found)
    hint = next((record.hint for record in records if record.rank in ranks and record.hint), "")
    hint = hint or next((record.hint for record in records if record.hint), BLIND)
    whose = "the replicas" if len(ranks) == len(records) else f"{of_ranks(ranks)} of {len(records)} replicas"
    message = (
        f"{whose} would use different gradients (norm {values(records, lambda record: record.norm)}): {hint}"
    )
    return bad(
        KIND,
        "Different",
        message,
        records=records,
        ranks=ranks,
        severity="critical" if seen.known else "warning",
        evidence={
            "norms": numbers(records, lambda record: record.norm),
            "camps": len(found),
            "hint": hint,
        },
    )


def differ(one: Replica, other: Replica) -> bool:
    """Whether two ranks' gradients differ by more than the rounding of their norms."""
    if one.digest == other.digest:
        return False
    if one.tensors != other.tensors or apart(one.norm, other.norm, NORM):
        return True
    if one.sketch is None or other.sketch is None or not math.isfinite(one.sketch - other.sketch):
        return False
    return abs(one.sketch - other.sketch) > SKETCH * max(one.tensors, 4)
