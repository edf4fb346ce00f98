"""DataRepeated: data-parallel ranks are fed the same batches."""

from collections import defaultdict
from typing import TYPE_CHECKING

from stepwarden.probes.naming import of_ranks
from stepwarden.probes.replicas.together import Together, bad, unknown
from stepwarden.wire import Verdict

if TYPE_CHECKING:
    from stepwarden.replica import Replica

KIND = "DataRepeated"

WAY_OUT = "shard the data by a DistributedSampler, or seed each rank's shuffling by its rank"


def judge(seen: Together) -> Verdict:
    """
    Say whether ranks see the same inputs.

    A first batch may be a dummy, and a batch that stays the same is meant to: only ranks that share two
    different batches in two steps on end repeat data.
    """
    if reason := seen.incomparable():
        return reason
    pairs = [(one, two) for one, two in seen.pairs() if one.inputs and two.inputs]
    if len(pairs) < 2:  # noqa: PLR2004 - what a comparison takes
        return unknown("NoInputs", "no two ranks have inputs to compare in two steps on end")
    shared: dict[tuple[str, str], list[Replica]] = defaultdict(list)
    last = max(two.step for _, two in pairs)
    for one, two in pairs:
        if one.inputs != two.inputs:
            shared[one.inputs, two.inputs].append(one)
    if not shared:
        return unknown("SameInput", "each rank sees one batch again and again")
    largest = max(shared.values(), key=len)
    if len(largest) == 1:
        return Verdict("ok", "Different", f"{len(pairs)} ranks see different data")
    ranks = [record.rank for record in largest]
    both = len(shared) == 1 and len(ranks) == len(seen.records)
    whose = f"all {len(ranks)} ranks" if both and len(ranks) > 2 else of_ranks(ranks)  # noqa: PLR2004
    message = (
        f"{whose} train on the same batches (steps {largest[0].step} and {last}), so they do "
        f"the same work: {WAY_OUT}"
    )
    evidence = {"inputs": largest[0].inputs, "groups": len(shared)}
    return bad(
        KIND, "SameBatches", message, records=largest, ranks=ranks, severity="warning", evidence=evidence
    )
