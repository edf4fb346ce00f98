"""FSDP2: a NaN in one rank's shard keeps every rank from its update, in that very step."""

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "fsdp.py"


@pytest.mark.parametrize(
    ("options", "moved_at_5", "code"),
    [
        pytest.param(("--on-anomaly", "skip"), "False", 0, id="skip"),
        pytest.param(("--on-anomaly", "observe"), "True", 0, id="observe"),
    ],
)
def test_no_rank_applies_a_step_that_is_bad_in_one_shard(stepwarden, options, moved_at_5, code):
    done = stepwarden("run", "--nproc", "2", *options, "--", SCRIPT)
    assert done.returncode == code, done.stderr
    said = set(done.stdout.split("\n"))
    for rank in (0, 1):
        assert {f"rank {rank} step {step} moved True" for step in (0, 4, 6, 7)} <= said
        assert f"rank {rank} step 5 moved {moved_at_5}" in said
    assert "0.weight holds 1 NaN" in done.stderr
    assert "can't be told any more" not in done.stderr


def test_a_hold_stops_the_rank_whose_own_shard_is_sound_too(stepwarden):
    done = stepwarden("run", "--nproc", "2", "--on-anomaly", "stop", "--", SCRIPT)
    assert done.returncode == 3, done.stderr
    assert "step 5" not in done.stdout
    assert "rank 0 holds at step 5 before the update: another rank found this step bad" in done.stderr
    assert "rank 1 holds at step 5 before the update: the gradient of 0.weight" in done.stderr
