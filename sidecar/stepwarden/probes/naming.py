"""How ranks are named in a sentence."""

from collections.abc import Sequence

NAMED = 4  # ranks that a message names one by one


def of_ranks(numbers: Sequence[int]) -> str:
    """Name ranks: `rank 3`, `ranks 0 and 1`, `ranks 0, 1, 2, 3 and 12 more`."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > NAMED:
        return f"ranks {', '.join(map(str, numbers[:NAMED]))} and {len(numbers) - NAMED} more"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
