"""Faults from public reports, found at once and at their place; healthy look-alikes, left in peace."""

import dataclasses

import pytest
import trial
from casebook import cases
from verdict import Verdict, judge

CASES = cases()


@pytest.fixture(scope="session")
def server():
    return trial.prepare()


def folder(path, name):
    (path / name).mkdir()
    return path / name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.slug)
def test_case(case, server, tmp_path):
    plain = trial.plainly(server, case, folder(tmp_path, "plain"))
    assert plain.losses, plain.errors
    run, findings = trial.watched(case, folder(tmp_path, "watched"))
    if trial.disturbed(plain, run):
        plain = trial.as_its_user_would(case, folder(tmp_path, "again"))
    assert trial.disturbed(plain, run) == ""
    verdict = judge(case, findings)
    if case.missed:
        assert verdict != Verdict(), f"it is found now, so cases.toml need not say {case.missed!r}"
        verdict = dataclasses.replace(verdict, caught=True, late=0, misplaced=())
    assert verdict == Verdict(), findings[:5]
