"""RankHung, where torch's flight recorder tells which collective it is, and with which tensors."""

import pytest
from pulsing import judge, waiting


def recorded(tensors, name="all_reduce", number=12, group="default_pg"):
    return {"name": name, "group": group, "sequence": number, "tensors": tensors}


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        (recorded("float[4]"), recorded("float[5]"), True),
        (recorded("float[4]"), recorded("half[4]"), True),
        (recorded("float[4]"), recorded("float[4]", "broadcast"), True),
        (recorded("float[4]"), recorded("float[4]"), False),
        (recorded("float[4]"), recorded("float[5]", number=13), False),  # another one: it may still come
        (recorded("float[4]"), recorded("float[5]", group="tp"), False),
        (recorded("float[4]", "all_gather"), recorded("float[5]", "all_gather"), False),  # NCCL takes these
        (recorded("float[4]"), {}, False),
        ({}, {}, False),
        ({"group": 3, "sequence": []}, {"group": [], "name": {}}, False),
    ],
)
def test_ranks_that_meet_with_unlike_tensors_are_told_so_soon(first, second, apart):
    verdict = judge(waiting(0, recorded=first), waiting(1, recorded=second), expected=2)
    assert (verdict.status, verdict.reason) == (("bad", "Apart") if apart else ("ok", "Waiting"))
    if apart:
        assert "in the same order, with the same shapes" in verdict.message
        assert f"number 12 of default_pg with {second['tensors']}" in verdict.message
        assert "its collective number" not in verdict.message
        assert verdict.finding.evidence["waiting"][0]["recorded"] == first
