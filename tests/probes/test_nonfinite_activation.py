"""NonFiniteActivation: what a replay found in a forward pass."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden import wire
from stepwarden.probes import nonfinite_activation
from stepwarden.probes.nonfinite_activation import Activation
from stepwarden.probes.observation import Observation


def judged(*records):
    seen = Observation(rank=1, step=7, records=records, file="a.py", line=60)
    return nonfinite_activation.probe(seen, nonfinite_activation.DEFAULTS)


@pytest.mark.parametrize(
    ("records", "answer"),
    [
        pytest.param((), ("unknown", "NotReplayed"), id="nothing was run again"),
        pytest.param((Activation(),), ("ok", "Finite"), id="finite"),
        pytest.param((Activation(op="log"),), ("bad", "NotFinite"), id="born"),
    ],
)
def test_verdicts(records, answer):
    verdict = judged(*records)
    assert (verdict.status, verdict.reason) == answer


def test_the_finding_names_the_place_and_the_numbers():
    born = Activation(
        op="exp",
        module="attn",
        file="b.py",
        line=3,
        label="forward > attn",
        largest_in=12.5,
        largest_out=math.inf,
    )
    found = judged(born).finding
    assert (found.op, found.module, found.file, found.line, found.label) == (
        "exp",
        "attn",
        "b.py",
        3,
        "forward > attn",
    )
    assert found.severity == "critical"
    assert found.message == "exp in attn (b.py:3) made Inf of finite inputs (the largest is 12.5) on rank 1"


texts = st.none() | st.text()
sizes = st.none() | st.floats()


@given(st.builds(Activation, op=texts, module=texts, label=texts, largest_in=sizes, largest_out=sizes))
def test_no_record_makes_it_raise_and_each_finding_crosses_the_wire(born):
    verdict = judged(born)
    assert (verdict.finding is not None) == (verdict.status == "bad") == (born.op is not None)
    if verdict.finding is not None:
        assert wire.from_line(wire.to_line(verdict.finding)).op == born.op
