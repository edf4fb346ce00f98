import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation
from stepwarden.probes.recompute_mismatch import DEFAULTS, Differing, Recomputed, probe
from stepwarden.wire import from_line, to_line

PLACE = {"file": "train.py", "line": 43, "op_file": "train.py", "op_line": 28}
DROPOUT = Differing(module="blocks.0.drop", op="dropout", share=0.3, worst=4.2, tolerance=1e-3, **PLACE)
NORM = Differing(module="bn", op="batch_norm", buffer=True, momentum=0.1, **PLACE)


def judged(*differing):
    return probe(Observation(rank=0, step=4, records=(Recomputed(parts=2, differing=differing),)), DEFAULTS)


def test_all_as_it_was():
    assert judged().status == "ok"


def test_nothing_compared_is_unknown():
    assert probe(Observation(rank=0, step=4), DEFAULTS).status == "unknown"


def test_the_call_of_checkpoint_is_the_place_and_the_operator_is_in_the_message():
    found = judged(NORM, DROPOUT).finding
    assert (found.file, found.line, found.module, found.op) == ("train.py", 43, "blocks.0.drop", "dropout")
    assert found.message.startswith("dropout of blocks.0.drop (train.py:28) gives other values (30% of them")
    assert found.evidence["others"][0]["op"] == "batch_norm"
    assert found.severity == "warning"


@pytest.mark.parametrize(
    ("differing", "way"),
    [
        pytest.param({"preserved": False}, "without preserve_rng_state=False", id="random-state"),
        pytest.param({"unset_line": 9}, "memory that line 9 left unset: begin with torch.zeros", id="memory"),
        pytest.param({}, "draw random numbers from torch only", id="something-else"),
        pytest.param({"shapes": ("(2,)", "(3,)")}, r"has (3,) and not (2,)", id="shape"),
        pytest.param({"share": None, "worst": None}, "draws other random numbers", id="stopped"),
        pytest.param({"buffer": True, "momentum": 0.1}, "momentum 0.0513167019", id="twice"),
        pytest.param({"buffer": True}, "take it out of what is checkpointed", id="twice-without-momentum"),
    ],
)
def test_the_way_out(differing, way):
    given = {"module": None, "op": "mul", "share": 1.0, "worst": 2.0, **PLACE} | differing
    assert way in judged(Differing(**given)).message


number = st.none() | st.floats(allow_nan=True)
some = st.builds(
    Differing,
    module=st.none() | st.text(),
    op=st.text(),
    file=st.none() | st.text(),
    line=st.none() | st.integers(-(2**63), 2**63 - 1),
    op_file=st.none() | st.text(),
    op_line=st.none() | st.integers(-(2**63), 2**63 - 1),
    share=number,
    worst=number,
    tolerance=number,
    buffer=st.booleans(),
    shapes=st.none() | st.tuples(st.text(), st.text()),
    preserved=st.booleans(),
    unset_line=st.none() | st.integers(-(2**63), 2**63 - 1),
    momentum=number,
)


@given(st.lists(some, max_size=4))
def test_no_record_makes_it_raise(differing):
    verdict = judged(*differing)
    assert (verdict.finding is not None) == (verdict.status == "bad") == bool(differing)
    if verdict.finding is not None:
        assert from_line(to_line(verdict.finding)).message == verdict.message
