import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.wire import Finding
from stepwarden_sidecar.merge import key, merge, own


def said(rank, local=None, **more):
    fields = {"kind": "NonFiniteGradient", "severity": "critical", "step": 7, "message": f"by {rank}"}
    return Finding(**fields | {"rank": rank, "ranks": (rank,), "evidence": {"local": local}} | more)


@pytest.mark.parametrize(
    ("local", "alone", "rank", "message"),
    [
        ({0: False, 1: True}, False, 1, "by 1"),
        ({0: True, 1: True}, False, None, "by 0"),  # on all by themselves, as parameters that all have
        ({2: True, 1: True, 0: False}, False, 1, "by 1"),
        ({0: False, 1: False}, False, None, "by 0"),  # born in the reduction, or not to be told
        ({0: None, 3: None}, False, None, "by 0"),
        ({0: None, 3: True}, False, 3, "by 3"),
        ({3: None}, False, None, "by 3"),
        ({0: None}, True, 0, "by 0"),  # a job of one rank
        ({0: False}, True, 0, "by 0"),
    ],
)
def test_the_rank_to_blame(local, alone, rank, message):
    merged = merge({each: said(each, value) for each, value in local.items()}, alone=alone)
    assert (merged.rank, merged.message) == (rank, message)
    assert merged.ranks == tuple(sorted(local))


def test_a_word_is_not_the_truth():
    assert merge({0: said(0, "false"), 1: said(1, 1)}, alone=False).rank is None


def test_place_and_evidence_are_those_of_the_rank_to_blame():
    other = said(0, local=False, parameter="a.weight", module="a")
    own = said(1, local=True, parameter="b.weight", module="b")
    merged = merge({0: other, 1: own}, alone=False)
    assert (merged.parameter, merged.module, merged.evidence) == ("b.weight", "b", {"local": True})


def test_the_worst_severity_and_the_earliest_step():
    seen = {
        0: said(0, severity="warning", first_step=5),
        1: said(1),
        2: said(2, severity="info", first_step=3),
    }
    merged = merge(seen, alone=False)
    assert (merged.severity, merged.first_step) == ("critical", 3)


def test_each_rank_fails_its_own_way():
    failed = [said(rank, kind="RankFailed", evidence={"traceback": f"tb {rank}"}) for rank in (0, 1)]
    assert key(failed[0]) != key(failed[1])
    assert merge({1: failed[1]}, alone=False).rank == 1


def test_what_a_rank_finds_in_another_attempt_is_another_finding():
    first, again = said(0), said(0, evidence={"attempt": 1})
    assert key(first) != key(again)
    assert own(first) != own(again)


@given(st.dictionaries(st.integers(0, 50), st.sampled_from([True, False, None]), min_size=1), st.booleans())
def test_the_order_of_arrival_does_not_matter(local, alone):
    seen = {rank: said(rank, value) for rank, value in local.items()}
    assert merge(seen, alone=alone) == merge(dict(reversed(seen.items())), alone=alone)
