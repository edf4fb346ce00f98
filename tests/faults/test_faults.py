"""Each fault of the catalogue once, in two ranks of a real training; `python bench faults` does it often."""

import os

import pytest
from faultbook import FAULTS, MACHINE, NO_HUB
from faulttrial import Trial

HERE = [fault for fault in FAULTS if MACHINE in fault.where]


@pytest.mark.parametrize("fault", HERE, ids=lambda fault: fault.name)
def test_the_fault_is_named_and_every_other_rank_is_told(fault):
    if fault.rooted and os.geteuid() != 0:
        pytest.skip("to mount a small file system, and to limit memory, takes root")
    seen = Trial(fault, ranks=2, rank=1, step=fault.begins[0] + 2).play()
    said = "\n".join(seen.lines)
    assert (seen.kind, seen.rank) == (fault.kind, 1 if fault.blamed else None), said
    assert fault.beside != NO_HUB or "the sidecar has ended" in said
    assert fault.name != "oom" or "out of memory: the kernel killed 1 process" in seen.message
    if fault.told:
        assert set(seen.told) >= {0}, said
    if not fault.lives:
        assert seen.code != 0, said
