"""ReplicasDiverged: data-parallel replicas hold different parameters, or are about to."""

from stepwarden.probes.naming import of_ranks
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

KIND = "ReplicasDiverged"

NORM = 1e-5  # of the norm over all parameters: more is no rounding
SKETCH = 3e-6  # of the norm of one parameter, summed over them
SAMPLE = 1e-4  # of a single value
OUT = 2  # single values that must differ

WAY_OUT = (
    "load checkpoints on every rank before the wrapper is made, and change parameters on all ranks alike, "
    "or broadcast them from rank 0"
)


def judge(seen: Together) -> Verdict:
    """Say whether all replicas hold the same parameters and update them at the same rate."""
    if reason := seen.incomparable():
        return reason
    rates = camps([record for record in seen.records if record.rates], rates_differ)
    if len(rates) > 1:
        return rated(seen, rates)
    whole = camps([record for record in seen.records if record.parameters], differ)
    some = camps([record for record in seen.records if record.samples], samples_differ)
    if len(whole) > 1 or len(some) > 1:
        return parted(seen, whole if len(whole) > 1 else some)
    if not whole:
        same = f"; {len(some[0][0].samples)} single values are the same" if some else ""
        return unknown("NotDue", f"parameters are compared at the first step, and every few steps{same}")
    return Verdict("ok", "Same", f"{len(seen.records)} ranks hold the same parameters")


def rated(seen: Together, found: list[list[Replica]]) -> Verdict:
    """Make the finding for learning rates that differ."""
    ranks = standing_out(found)
    records = [record for camp in found for record in camp]
    index = next(i for i, rate in enumerate(found[0][0].rates) if rate != found[1][0].rates[i])
    message = (
        f"the replicas' learning rates differ ({values(records, lambda record: record.rates[index])}, "
        f"parameter group {index}), so their parameters part: step the scheduler alike on every rank"
    )
    rate = numbers(records, lambda record: list(record.rates))
    return bad(KIND, "DifferentRates", message, records=seen.records, ranks=ranks, evidence={"rates": rate})


def parted(seen: Together, found: list[list[Replica]]) -> Verdict:
    """Make the finding for parameters that differ."""
    ranks = standing_out(found)
    records = sorted((record for camp in found for record in camp), key=lambda record: record.rank)
    whose = "the replicas" if len(ranks) == len(records) else f"{of_ranks(ranks)} of {len(records)} replicas"
    norms = values([r for r in records if r.weight is not None], lambda record: record.weight)
    seen_by = f" (norm {norms})" if norms else ""
    message = f"{whose} hold{'s' if len(ranks) == 1 else ''} different parameters{seen_by}: {WAY_OUT}"
    return bad(
        KIND,
        "Different",
        message,
        records=seen.records,
        ranks=ranks,
        severity="critical" if seen.known else "warning",
        evidence={"norms": numbers(records, lambda record: record.weight), "camps": len(found)},
    )


def differ(one: Replica, other: Replica) -> bool:
    """Whether two ranks' parameters differ by more than the rounding of their norms."""
    if one.parameters == other.parameters:
        return False
    if apart(one.weight, other.weight, NORM):
        return True
    if one.weights is None or other.weights is None:
        return False
    return abs(one.weights - other.weights) > SKETCH * max(one.tensors, 4)


def samples_differ(one: Replica, other: Replica) -> bool:
    """Whether at least two single values differ."""
    if len(one.samples) != len(other.samples):
        return False
    return sum(apart(a, b, SAMPLE) for a, b in zip(one.samples, other.samples, strict=True)) >= OUT


def rates_differ(one: Replica, other: Replica) -> bool:
    """Whether the learning rates of any group differ."""
    return len(one.rates) == len(other.rates) and one.rates != other.rates
