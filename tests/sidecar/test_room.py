from hypothesis import given
from hypothesis import strategies as st

from stepwarden.wire import Finding, Orders, to_line
from stepwarden_sidecar.job import Job
from stepwarden_sidecar.room import KINDS, OTHER, ROOM

MARGIN = 64 * 1024  # what is left of findings without evidence, and the report itself


def finding(step, size, kind="NonFiniteLoss"):
    evidence = {"text": "x" * size}
    return Finding(kind=kind, severity="critical", step=step, message="m", rank=0, evidence=evidence)


@given(st.lists(st.integers(0, 2 * 1024 * 1024), max_size=8))
def test_a_report_has_all_findings_and_the_last_ones_whole(sizes):
    job = Job(1, 1)
    job.restore(finding(step, size) for step, size in enumerate(sizes))
    report = job.report("1", Orders(), 0.0)
    assert [each.step for each in report.findings] == list(range(len(sizes)))
    assert len(to_line(report)) <= ROOM + MARGIN
    whole = ["text" in each.evidence for each in report.findings]
    assert whole == sorted(whole)
    assert all(whole) or sum(sizes) + MARGIN > ROOM


def test_kinds_without_end_are_counted_as_one():
    job = Job(1, 1)
    job.restore(finding(step, 1, kind=f"Kind{step}") for step in range(3 * KINDS))
    assert len(job.counts) == KINDS + 1
    assert sum(job.counts.values()) == 3 * KINDS
    assert job.counts[OTHER, "critical"] == 2 * KINDS
