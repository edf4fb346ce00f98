"""A status as it is written: a merge patch that makes the new of the old, and no more."""

from hypothesis import given
from hypothesis import strategies as st

from stepwarden.wire import Finding
from stepwarden_operator.findings import count, merge, to_status
from stepwarden_operator.status import merge_patch

values = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def apply(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result


@given(old=documents, new=documents)
def test_a_merge_patch_makes_the_new_of_the_old(old, new):
    assert apply(old, merge_patch(old, new)) == new


@given(document=documents)
def test_what_is_alike_needs_no_patch(document):
    assert merge_patch(document, document) == {}


def finding(step, kind="NonFiniteLoss", **more):
    return Finding(kind=kind, severity="critical", step=step, message="m", **more)


def test_the_newer_word_about_a_finding_wins():
    [found] = merge([finding(3)], [finding(3, rank=1)])
    assert found.rank == 1


def test_what_was_let_go_of_is_not_counted_again():
    old = {"findings": [to_status(finding(step)) for step in range(10, 30)], "findingsCount": 30}
    assert count(old, [finding(step) for step in range(30)]) == 30
    assert count(old, [finding(step) for step in range(31)]) == 31


def test_evidence_is_json_and_small():
    body = to_status(finding(1, evidence={"norm": float("nan"), "traceback": "x" * 9000, "steps": (1, 2)}))
    assert body["evidence"]["norm"] == "NaN"
    assert len(body["evidence"]["traceback"]) == 2048
    assert body["evidence"]["steps"] == [1, 2]
