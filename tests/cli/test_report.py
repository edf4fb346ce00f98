import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwarden import report
from stepwarden.report import curves, records
from stepwarden.wire import Finding, StepTaken, to_dict

FACTS = report.Facts(
    title="torchrun <train>.py", ranks=2, started=0.0, seconds=61.0, exit_code=3, ended_by="a person"
)


def write(folder, findings, steps):
    for name, items in (("findings", findings), ("steps", steps)):
        lines = "".join(json.dumps(to_dict(item)) + "\n" for item in items)
        (folder / f"{name}.jsonl").write_text(lines)
    return report.write(folder, FACTS)


def step(number, rank=0, loss=1.0, norm=2.0):
    return StepTaken(rank=rank, step=number, time=0.0, loss=loss, gradient_norm=norm)


def test_the_page_has_the_findings_the_curves_and_the_facts(tmp_path):
    finding = Finding(
        kind="NonFiniteGradient",
        severity="critical",
        step=2,
        rank=1,
        ranks=(0, 1),
        parameter="a.weight",
        message="<b>4</b> NaN",
        evidence={"norm": math.nan},
    )
    steps = [step(n, rank, norm=math.nan if n == 2 else 1.0) for n in range(4) for rank in (0, 1)]
    assert write(tmp_path, [finding], steps) == 1
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "began on rank 1, seen on ranks 0, 1" in page
    assert "&lt;b&gt;4&lt;/b&gt; NaN" in page
    assert "torchrun &lt;train&gt;.py" in page
    assert page.count('class="broken"') == 2
    assert "1 min 1 s" in page
    assert "http" not in page
    assert json.loads((tmp_path / "run.json").read_text())["exit_code"] == 3


def test_a_run_without_a_step_has_a_page_too(tmp_path):
    assert report.write(tmp_path, FACTS) == 0
    assert "Nothing was found." in (tmp_path / "report.html").read_text()


def test_a_torn_line_is_passed_over(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(json.dumps(to_dict(step(1))) + '\n{"rank": 0, "st')
    assert [each.step for each in records.read_steps(path)[0]] == [1]


def test_a_long_run_is_thinned_but_for_what_is_not_finite(tmp_path):
    path = tmp_path / "steps.jsonl"
    bad = {1001, 7777}
    items = (step(n, loss=math.nan if n in bad else 1.0) for n in range(20_000))
    path.write_text("".join(json.dumps(to_dict(item)) + "\n" for item in items))
    kept = [each.step for each in records.read_steps(path)[0]]
    assert len(kept) <= 2 * records.MOST
    assert bad <= set(kept)
    assert kept == sorted(kept)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.none() | st.floats(width=32)),
        max_size=30,
        unique_by=lambda point: point[0],
    )
)
def test_any_numbers_can_be_drawn_inside_the_frame(points):
    drawn = curves.chart("Loss", {0: sorted(points, key=lambda point: point[0])}, [0])
    if all(value is None for _, value in points):
        assert drawn is None
        return
    numbers = drawn.curves[0].path.replace("M", " ").replace("L", " ").split()
    assert all(0 <= float(number) <= curves.WIDTH for number in numbers)


@pytest.mark.parametrize(("low", "high"), [(0, 79), (0.1, 0.7), (-3, 3), (5, 5), (1e-9, 1e9)])
def test_ticks_are_inside_and_few(low, high):
    found = curves.ticks(low, high, 5)
    assert 1 <= len(found) <= 7
    assert all(low <= tick <= high for tick in found)
