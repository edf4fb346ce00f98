from hypothesis import given
from hypothesis import strategies as st

from stepwarden.wire import Finding, PodReport, to_line
from stepwarden_sidecar.link import ROOM, fitting
from stepwarden_sidecar.server import MAX_BODY

sizes = st.lists(st.integers(0, 128 * 1024), max_size=20)


@given(sizes)
def test_what_one_message_can_not_hold_goes_with_the_next(sizes):
    left = {
        ("K", step, 0): Finding(kind="K", severity="info", step=step, message="m" * size)
        for step, size in enumerate(sizes)
    }
    sent = []
    while left:
        batch = fitting(left)
        assert batch
        assert len(to_line(PodReport(pod=0, findings=tuple(batch.values())))) < min(2 * ROOM, MAX_BODY)
        sent += batch
        left = {key: each for key, each in left.items() if key not in batch}
    assert len(sent) == len(sizes)
