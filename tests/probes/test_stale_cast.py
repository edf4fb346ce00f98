from hypothesis import given
from hypothesis import strategies as st

from stepwarden.probes import Observation, stale_cast
from stepwarden.probes.stale_cast import Casts


def judged(*records):
    return stale_cast.probe(Observation(rank=0, step=1, records=records), {})


def test_nothing_is_known_where_nothing_was_looked_at():
    assert judged().status == "unknown"


def test_fresh_casts_are_healthy():
    assert judged(Casts(stale=0, updated=0)).status == "ok"


def test_stale_ones_are_named_with_the_update_that_they_missed():
    record = Casts(stale=2, updated=0, parameters=("body.0.weight", "body.0.bias"), file="train.py", line=4)
    finding = judged(record).finding
    assert (finding.severity, finding.module, finding.parameter) == ("warning", "body.0", "body.0.weight")
    assert (finding.file, finding.line) == ("train.py", 4)
    assert finding.message.startswith(
        "body.0.weight and 1 more parameters are used as cast to lower precision before the update of step 0"
    )


@given(st.integers(min_value=0), st.integers(min_value=0), st.lists(st.text()).map(tuple))
def test_any_record_has_a_verdict(stale, updated, parameters):
    verdict = judged(Casts(stale=stale, updated=updated, parameters=parameters))
    assert verdict.status == ("bad" if stale else "ok")
