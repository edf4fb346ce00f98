"""A rank's failure is named although something else is broken as well."""

import os
import signal

import pytest
from faultbook import FAULTS
from faulttrial import Trial

SIGKILL = next(fault for fault in FAULTS if fault.name == "sigkill")
RAISE = next(fault for fault in FAULTS if fault.name == "raise")
FULL = """
mount -t tmpfs -o size=512k none "$TMPDIR" || exit 90
"$@" & run=$!
while kill -0 $run && ! ls "$TMPDIR"/stepwarden-*/*/rank-1.sock >/dev/null 2>&1; do sleep 0.1; done
head -c 1M /dev/zero > "$TMPDIR/full" 2>/dev/null
wait $run
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount a small file system takes root")
@pytest.mark.parametrize("fault", [RAISE, SIGKILL], ids=lambda fault: fault.name)
def test_with_no_room_left_where_the_sockets_are(tmp_path, fault):
    within = ("unshare", "--mount", "bash", "-c", FULL, "full")
    seen = Trial(fault, ranks=2, rank=1, step=20, within=within, temporary=tmp_path).play()
    said = "\n".join(seen.lines)
    assert (seen.kind, seen.rank) == ("RankFailed", 1), said
    assert set(seen.told) >= {0}, said


def test_with_a_sidecar_that_was_killed_a_moment_before():
    trial = Trial(RAISE, ranks=2, rank=1, step=40)
    step = trial.folder / "step-1"
    assert trial.until(lambda: step.exists() and int(step.read_text() or 0) >= 5, 120), trial.text()
    os.kill(trial.sidecar(), signal.SIGKILL)
    seen = trial.play()
    said = "\n".join(seen.lines)
    assert "the sidecar has ended" in said
    assert (seen.kind, seen.rank) == ("RankFailed", 1), said
    assert set(seen.told) >= {0}, said
