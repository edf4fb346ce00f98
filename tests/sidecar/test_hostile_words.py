"""Messages that can be read, and say what can't be: the sidecar's state takes them, and answers as before."""

import json
import tempfile
from pathlib import Path

import pytest
from hostility import anything, copies, instructions, pods
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwarden.pulse import Pulse
from stepwarden.replica import Replica
from stepwarden.wire import (
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
from stepwarden_sidecar.handover import Copy, copy_of, inherit, lead, read_copy, step_down
from stepwarden_sidecar.metrics import page
from stepwarden_sidecar.settings import Settings
from stepwarden_sidecar.sidecar import Sidecar

RANKS = 4
PARTS = {"ranks": RankReport, "findings": Finding, "replicas": Replica, "pulses": Pulse}
TYPES = (Finding, Instruction, JobReport, Orders, PodReport, RankState, StepTaken)


def read(cls, body):
    """Read a message that came as JSON; None where it is none."""
    try:
        return from_dict(cls, json.loads(json.dumps(body)))
    except ValueError:
        return None


def readable(body):
    """A pod's report of those of its parts that can be read."""
    parts = {
        name: [each for each in body.get(name, ()) if read(cls, each) is not None]
        for name, cls in PARTS.items()
    }
    return read(PodReport, {**body, **parts})


@settings(max_examples=60, deadline=None)
@given(st.lists(pods, max_size=6), st.lists(instructions, max_size=2), copies, st.floats(0.0, 8.0))
def test_the_hub_goes_on(reports, wanted, copied, later):
    now = [100.0]
    with tempfile.TemporaryDirectory() as folder:
        sidecar = Sidecar(Settings(directory=Path(folder), token="t", ranks=RANKS), lambda: now[0])  # noqa: S106 - a test's
        sidecar.restore()
        sidecar.instruct(Instruction(hold=True))
        for body in reports:
            if report := readable(body):
                sidecar.pod_reported(report)
                now[0] += later
        for body in wanted:
            if instruction := read(Instruction, body):
                sidecar.instruct(instruction)
        try:
            copy = read_copy(json.dumps(copied))
        except ValueError:
            copy = Copy(boot="", cursor="")
        inherit(sidecar, copy)
        step_down(sidecar)
        lead(sidecar)
        now[0] += later
        sidecar.turn()
        report = sidecar.job_report(sidecar.job)
        assert from_line(to_line(report)) == from_line(to_line(from_line(to_line(report))))
        assert {each.rank for each in report.ranks} <= set(range(RANKS))
        assert read_copy(copy_of(sidecar, sidecar.job, "", 0).to_json())
        page(sidecar, "")


@pytest.mark.parametrize("cls", TYPES)
@settings(max_examples=100, deadline=None)
@given(anything)
def test_what_is_read_can_be_written_and_read_again(cls, body):
    try:
        message = from_line(json.dumps({**body, "type": "x"}) if isinstance(body, dict) else json.dumps(body))
    except ValueError:
        message = read(cls, body) if isinstance(body, dict) else None
    if message is not None:
        written = json.dumps(to_dict(message))
        assert json.dumps(to_dict(from_dict(type(message), json.loads(written)))) == written
