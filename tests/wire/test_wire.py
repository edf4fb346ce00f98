import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden import wire
from stepwarden.replica import Replica
from stepwarden.wire import (
    TYPES,
    Finding,
    Instruction,
    JobReport,
    Orders,
    PodReport,
    RankReport,
    RankState,
    StepTaken,
    from_dict,
    from_line,
    to_dict,
    to_line,
)

numbers = st.integers(min_value=-1, max_value=2**53)
ranks = st.integers(min_value=0, max_value=2**20)
floats = st.floats()  # NaN and the infinities too
some_float = st.none() | floats
texts = st.text(max_size=50)
states = st.sampled_from(["running", "held", "failed", "ended"])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)

findings = st.builds(
    Finding,
    kind=texts,
    severity=st.sampled_from(["info", "warning", "critical"]),
    step=numbers,
    message=texts,
    first_step=st.none() | numbers,
    rank=st.none() | ranks,
    ranks=st.lists(ranks, max_size=4).map(tuple),
    module=st.none() | texts,
    parameter=st.none() | texts,
    op=st.none() | texts,
    file=st.none() | texts,
    line=st.none() | numbers,
    label=st.none() | texts,
    evidence=st.dictionaries(texts, json_values, max_size=3),
)
orders = st.builds(
    Orders, hold_at=st.none() | numbers, acknowledged=numbers, update=st.sampled_from(["skip", "apply"])
)
reports = st.builds(
    RankReport,
    rank=ranks,
    pod=ranks,
    state=states,
    step=numbers,
    time=floats,
    loss=some_float,
    gradient_norm=some_float,
    steps_per_second=some_float,
    reason=texts,
)
replicas = st.builds(
    Replica,
    rank=ranks,
    run=texts,
    step=numbers,
    optimizer=numbers,
    count=numbers,
    group=texts,
    size=numbers,
    digest=texts,
    norm=some_float,
    sketch=some_float,
    parameters=texts,
    samples=st.lists(floats, max_size=3).map(tuple),
    scale=some_float,
    rates=st.lists(floats, max_size=2).map(tuple),
    inputs=texts,
    own=some_float,
    used=some_float,
    hint=texts,
    file=st.none() | texts,
    line=st.none() | numbers,
)
many_reports, many_findings = (st.lists(each, max_size=3).map(tuple) for each in (reports, findings))
messages = st.one_of(
    findings,
    orders,
    replicas,
    st.builds(
        StepTaken,
        rank=ranks,
        step=numbers,
        time=floats,
        seconds=some_float,
        loss=some_float,
        gradient_norm=some_float,
        overhead_seconds=floats,
        dropped=numbers,
    ),
    st.builds(
        RankState,
        rank=ranks,
        state=states,
        step=numbers,
        time=floats,
        pid=numbers,
        reason=texts,
        unknown=st.dictionaries(texts, texts, max_size=2),
    ),
    st.builds(
        Instruction, hold=st.booleans(), acknowledged=numbers, update=st.sampled_from(["skip", "apply"])
    ),
    st.builds(JobReport, version=texts, ranks=many_reports, findings=many_findings, orders=orders),
    st.builds(
        PodReport,
        pod=ranks,
        ranks=many_reports,
        findings=many_findings,
        replicas=st.lists(replicas, max_size=2).map(tuple),
    ),
)


def strict(line):
    """As a reader that knows no NaN would read it."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(line, parse_constant=refuse)


@given(messages)
def test_a_message_comes_out_as_it_went_in(message):
    line = to_line(message)
    assert strict(line)["schema"] == wire.SCHEMA
    assert "\n" not in line
    back = from_line(line.encode())
    assert type(back) is type(message)
    assert repr(back) == repr(message)  # NaN is not equal to itself


@given(messages, st.dictionaries(texts.map("x-{}".format), json_values, max_size=3))
def test_fields_of_a_newer_sender_are_passed_over(message, new):
    assert repr(from_line(json.dumps(strict(to_line(message)) | new))) == repr(message)


@given(messages)
def test_fields_of_an_older_sender_have_defaults(message):
    old = strict(to_line(message))
    for spec in fields(message):
        if old.get(spec.name) in (None, [], {}):
            old.pop(spec.name, None)
    assert type(from_line(json.dumps(old))) is type(message)


@given(st.binary() | st.text() | json_values.map(json.dumps))
def test_garbage_is_a_value_error(garbage):
    with pytest.raises(ValueError, match=r"."):
        from_line(garbage)


@given(st.sampled_from(sorted(TYPES)), st.data())
def test_a_field_of_another_type_is_a_value_error_or_read(name, data):
    names = [spec.name for spec in fields(TYPES[name])]
    body = data.draw(st.dictionaries(st.sampled_from(names), json_values))
    try:
        message = from_line(json.dumps({"type": name} | body))
    except ValueError:
        return
    assert from_line(to_line(message)) is not None


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"type":"step","rank":0,"step":1,"time":1%s}' % ("0" * 400),
        '{"type":"step","rank":"0","step":1,"time":1}',
        '{"type":"step","rank":0,"step":1,"time":null}',
        '{"type":"step","rank":0,"step":1.5,"time":1}',
        '{"type":"step","rank":0,"time":1}',
        '{"type":"rank","rank":0,"state":"lost","step":1,"time":1}',
        '{"type":"finding","kind":"K","severity":"bad","step":1,"message":"m"}',
        '{"type":"finding","kind":"K","severity":"info","step":1,"message":"m","evidence":[]}',
        '{"type":"finding","kind":"K","severity":"info","step":1,"message":null}',
        '{"type":"job","version":"1","ranks":[Infinity]}',
        '{"type":"job","version":"1","findings":["f"]}',
        '{"type":"job","version":"1","orders":3}',
        '{"type":["step"]}',
        '{"type":"unheard-of"}',
    ],
)
def test_what_can_not_be_a_message_is_a_value_error(line):
    with pytest.raises(ValueError, match="not a"):
        from_line(line)


def test_numbers_that_json_has_not_are_words_in_evidence():
    finding = Finding(
        kind="K",
        severity="critical",
        step=1,
        message="m",
        evidence={"norms": (math.nan, math.inf, -math.inf)},
    )
    assert strict(to_line(finding))["evidence"] == {"norms": ["NaN", "Infinity", "-Infinity"]}
    assert float("-Infinity") == -math.inf


def test_a_finding_has_the_fields_of_the_docs_and_no_more():
    finding = Finding(kind="K", severity="critical", step=1, message="m")
    assert from_dict(Finding, to_dict(finding)) == finding
    names = "kind severity step message first_step rank ranks module parameter op file line label evidence"
    assert list(to_dict(finding)) == names.split()


def test_a_rank_s_socket_is_named_by_its_rank():
    assert wire.rank_socket(3) == "rank-3.sock"
