"""Each fault of the catalogue once, in two ranks of a real training; `python bench faults` does it often."""

import pytest
from faultbook import FAULTS
from faulttrial import Trial


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_named_and_every_other_rank_is_told(fault):
    seen = Trial(fault, ranks=2, rank=1, step=8).play()
    said = "\n".join(seen.lines)
    assert (seen.kind, seen.rank) == (fault.kind, 1 if fault.blamed else None), said
    if fault.kind != "RankStraggling":
        assert set(seen.told) >= {0}, said
    if not fault.lives:
        assert seen.code != 0, said
